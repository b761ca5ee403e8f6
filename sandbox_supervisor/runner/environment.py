"""The whole environment of what runs in an attempt: an allow-list, never what the runner itself was given."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox_supervisor.protocol.folder import MARK, PASSED_ON
from sandbox_supervisor.protocol.git_rules import AUTHOR
from sandbox_supervisor.runner.folders import Folder

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NONCE = "CAISSON_RUNNER_NONCE"
_PASSED = (MARK, *PASSED_ON)
_OURS = ("HOME", "TMPDIR", "CAISSON_ARTEFACTS", "CAISSON_RESULT", "CAISSON_ATTEMPT", "CAISSON_WORK")


def child_environment(attempt: str, folder: Folder, image: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    """Give the environment of an attempt's process.

    ``extra`` is the flow's and the driver's; it cannot replace what says where the attempt's own folders are.
    """
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    env |= {
        "PATH": search_path(image),
        "LANG": "C.UTF-8",
        "USER": "caisson",
        "LOGNAME": "caisson",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "CI": "true",
        "GIT_TERMINAL_PROMPT": "0",
        **AUTHOR,
    }
    if image is not None:
        env["CAISSON_IMAGE"] = str(image)
    env |= {name: value for name, value in extra.items() if name != NONCE and "\0" not in name + value and name}
    ours = (folder.home, folder.tmp, folder.artefacts, folder.result, attempt, folder.path.parent)
    return env | dict(zip(_OURS, map(str, ours), strict=True))


def search_path(image: Path | None) -> str:
    """Give PATH: the image's programs, the interpreter that runs the sandbox, the system's."""
    parts = [str(image / "bin")] if image is not None else []
    return ":".join([*parts, str(Path(sys.base_prefix) / "bin"), SYSTEM_PATH])
