"""Write to the person at the terminal, on standard error: nothing that a task says may steer the terminal."""

import sys
import time
from contextlib import suppress

_began = time.monotonic()


def say(words: str) -> None:
    """Tell in one line what is going on, with the seconds since the command began."""
    _write(f"{time.monotonic() - _began:6.1f} s  {plain(' '.join(words.splitlines()))}")


def tell(text: str) -> None:
    """Tell something of one or more lines."""
    _write("\n".join(plain(line) for line in text.splitlines()))


def plain(line: str) -> str:
    """Replace what is no visible character: escape sequences, bells, marks that turn the direction of writing."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def _write(text: str) -> None:
    """A terminal that was closed stops nobody: what is being done, a stop above all, goes on to its end."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
