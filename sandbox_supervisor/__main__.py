"""Start one of the processes of a sandbox: ``python -m sandbox_supervisor NAME …``."""

import sys
from importlib import import_module

COMMANDS = {
    "launch": "sandbox_supervisor.launcher.command",
    "supervise": "sandbox_supervisor.supervise",
    "runner": "sandbox_supervisor.runner.main",
    "shim": "sandbox_supervisor.runner.shim",
    "driver-host": "sandbox_supervisor.drivers.host",
    "scripted-agent": "sandbox_supervisor.drivers.scripted.agent",
    "materialise": "sandbox_supervisor.materialise.command",
    "python-tests": "sandbox_supervisor.toolbox.python_tests",
    "tidy": "sandbox_supervisor.toolbox.tidy",
    "probe-isolation": "sandbox_supervisor.launcher.probe",
}


def main(argv: list[str]) -> int:
    """Import the one module that was asked for and run its ``main``."""
    if not argv or argv[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m sandbox_supervisor {{{','.join(COMMANDS)}}} …\n")
        return 2
    return int(import_module(COMMANDS[argv[0]]).main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
