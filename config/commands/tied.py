"""Run a program that dies with the process manager: ``python tied.py PROGRAM ARGUMENT…``.

Without it, a killed process manager would leave a web server on the port and a second beat for the next start to meet.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process by ``arguments``; does nothing if the parent has already gone."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent and parent != 1:
        os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
