"""Without a Chromium of the machine the browser tests get Playwright's own, or a reason why they are not run."""

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from config.commands import chromium

PLACES = (
    *("chrome-linux/chrome", "chrome-linux64/chrome", "chrome-linux/headless_shell", "ffmpeg-linux"),
    "chrome-headless-shell-linux64/chrome-headless-shell",
)


def archive() -> bytes:
    """Give what stands in for each of the archives that Playwright fetches."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made:
        for place in PLACES:
            entry = zipfile.ZipInfo(place)
            entry.external_attr = 0o755 << 16
            made.writestr(entry, "#!/bin/sh\n")
    return whole.getvalue()


class Mirror(BaseHTTPRequestHandler):
    """A place to download from. It holds nothing, or the stand-in for whatever is asked for."""

    holds: bytes = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.holds else 404)
        self.send_header("Content-Length", str(len(self.holds)))
        self.end_headers()
        self.wfile.write(self.holds)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture(params=[archive(), b""], ids=["whole mirror", "empty mirror"])
def mirror(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[bool]:
    """A machine with no browser and no apt, and a place from which Playwright downloads; say whether it has one."""
    handler = type("Holding", (Mirror,), {"holds": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "browsers"))
        monkeypatch.setenv("PLAYWRIGHT_SKIP_VALIDATE_HOST_REQUIREMENTS", "1")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CAISSON_CHROMIUM", raising=False)
        yield bool(request.param)
        server.shutdown()


@pytest.mark.slow
def test_playwright_brings_a_browser_where_the_machine_has_none(mirror, tmp_path):
    found = chromium.find()
    if not mirror:
        assert found is None
        return
    assert found is not None
    assert found.is_relative_to(tmp_path / "browsers")
    assert found.is_file()
