"""The ballast: space set aside so that the fact "no space" can still be written down."""

import errno
import os
from contextlib import suppress
from pathlib import Path

BALLAST = 16 * 1024 * 1024
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Ballast:
    """A file of real blocks beside the database."""

    def __init__(self, path: Path, size: int = BALLAST) -> None:
        self._path = path
        self._size = size

    def hold(self) -> bool:
        """Set the space aside, if it is not and there is at least twice as much. Repeating is safe."""
        with suppress(OSError):
            if self._path.stat().st_blocks * 512 >= self._size:
                return True
        if self._free() < 2 * self._size:
            return False
        try:
            self._fill()
        except OSError:
            self.release()
            return False
        return True

    def is_needed(self) -> bool:
        """Say whether there is too little space beside it even to open a database."""
        return self._free() < self._size // 4

    def release(self) -> bool:
        """Give the space back. False when there was none."""
        try:
            held = self._path.stat().st_size > 0
            self._path.unlink()
        except FileNotFoundError:
            return False
        return held

    def _free(self) -> int:
        """Give the free bytes beside it; none if the folder has vanished."""
        try:
            found = os.statvfs(self._path.parent)
        except FileNotFoundError:
            return 0
        return found.f_bavail * found.f_frsize

    def _fill(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, self._size)
        finally:
            os.close(file)
