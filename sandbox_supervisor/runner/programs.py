"""Which program a spawn order means, and what a driver host is told about it."""

import sys
from pathlib import Path
from typing import Any

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused, Spawn, SpawnKind

# A shell in between gives the same exit codes (126, 127) for what cannot be executed, whatever stands around it.
_EXEC = ("/bin/sh", "-c", 'exec "$@"', "sh")
ROOT = Path(__file__).resolve().parents[2]
OURS = (sys.executable, "-P", "-s", "-B", "-m")


def program(spawn: Spawn) -> tuple[str, ...]:
    """Give the argument list that the attempt's tree begins with. Raises RunnerRefused."""
    if spawn.kind is SpawnKind.DRIVER:
        return (*OURS, "sandbox_supervisor.drivers.host")
    if not spawn.argv or any("\0" in word for word in spawn.argv):
        raise RunnerRefused("bad_command", "A command needs at least one word, without NUL in any.")
    return (*_EXEC, *spawn.argv)


def job_of(spawn: Spawn, folder: Folder, env: dict[str, str], *, exit_patience: float) -> dict[str, Any]:
    """Give the driver host's job; empty for a command. ``env`` is the agent's whole environment."""
    if spawn.kind is SpawnKind.COMMAND:
        return {}
    order: dict[str, Any] = codec.plain(spawn)
    more = {"cwd": str(folder.tree), "result_file": str(folder.result), "exit_patience": exit_patience}
    return order | {"env": env} | more
