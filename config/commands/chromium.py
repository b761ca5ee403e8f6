"""Find a Chromium for the browser tests, or bring one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

WHY_MISSING = (
    "no Chromium: set CAISSON_CHROMIUM to one, put chromium on the PATH, "
    "or run as root on Debian or Ubuntu so that it can be installed"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> Path | None:
    """Give the one that CAISSON_CHROMIUM names, one on the path, Debian's (installed as root), or Playwright's."""
    named = os.environ.get("CAISSON_CHROMIUM")
    if named:
        return Path(named)
    return _on_path() or _from_debian() or _from_playwright()


def _on_path() -> Path | None:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None


def _from_debian() -> Path | None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
    ):
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
            return None
    return _on_path()


def _from_playwright() -> Path | None:
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        subprocess.run(command, capture_output=True, timeout=300, check=True)
    except subprocess.SubprocessError:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path)
