"""Where things lie under the state directory, and the lock and the memory of each sandbox name."""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox_providers.contract import InvalidSpec, Unavailable
from sandbox_supervisor.protocol import codec, folder, handover

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_PAUSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What is remembered of a sandbox that was cleaned up, so that its name is never used again."""

    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class Layout:
    state: Path

    @property
    def sandboxes(self) -> Path:
        return self.state / "sandboxes"

    @property
    def images(self) -> Path:
        return self.state / "images"

    @property
    def removing(self) -> Path:
        return self.sandboxes / ".removing"

    @property
    def names(self) -> Path:
        return self.sandboxes / ".names"

    def make(self) -> None:
        """Create the folders that are missing. Raises Unavailable when the state directory cannot be written."""
        try:
            for path in (self.sandboxes, self.removing, self.names):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable("state_unusable", f"{self.state} cannot be used: {error.strerror}.") from None

    def check(self) -> None:
        """Raise Unavailable when the sandboxes cannot be seen: then nothing is known, least of all that one is lost."""
        try:
            os.scandir(self.state).close()
            if self.sandboxes.exists():
                os.scandir(self.sandboxes).close()
        except OSError as error:
            raise Unavailable("state_unusable", f"{self.state} cannot be read: {error.strerror}.") from None

    def place(self, name: str) -> Path:
        """Give the folder of a sandbox. Raises InvalidSpec for a name that is none."""
        if not _NAME.match(name):
            raise InvalidSpec("name_malformed", f"{name[:80]!r} is no sandbox name: use a-z, 0-9 and '-', at most 63.")
        return self.sandboxes / name

    def image(self, digest: str) -> Path:
        return self.images / digest.removeprefix("sha256:")

    def order(self, name: str) -> folder.Order | None:
        """Read what was ordered under ``name``; None if nothing was. Raises Unavailable when it cannot be read."""
        try:
            return handover.read(self.place(name) / folder.ORDER, folder.Order)
        except (codec.Malformed, OSError) as error:
            raise Unavailable("order_unreadable", f"{folder.ORDER} of {name} cannot be read: {error}") from None

    def orders(self) -> Iterator[folder.Order]:
        """Give every readable order; foreign and damaged folders are skipped."""
        for path in sorted(self.sandboxes.iterdir()) if self.sandboxes.exists() else ():
            if not _NAME.match(path.name):
                continue
            try:
                order = handover.read(path / folder.ORDER, folder.Order)
            except (codec.Malformed, OSError):
                continue
            if order is not None and order.name == path.name:
                yield order

    def gone(self, name: str) -> Gone | None:
        """Say what is remembered of a name that was cleaned up."""
        try:
            data = (self.names / name).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return codec.decode(data, Gone) if data else None
        except codec.Malformed:  # a power failure in the middle of writing it: used up it is all the same
            return Gone(key="", uid="")

    def is_known(self, name: str) -> bool:
        """Say whether this state directory has ever heard of the name."""
        return (self.names / name).exists()

    def remember(self, name: str, gone: Gone) -> None:
        """Mark the name as used up. To be called with the name held."""
        with (self.names / name).open("r+b") as file:
            file.write(codec.encode(gone))
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def held(self, name: str, *, patience: float) -> Iterator[None]:
        """Hold a name against other creators and removers. Raises Unavailable after ``patience`` seconds."""
        self.place(name)
        self.make()
        fd = os.open(self.names / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _lock(fd, name, time.monotonic() + patience)
            yield
        finally:
            os.close(fd)


def _lock(fd: int, name: str, ends_at: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > ends_at:
                raise Unavailable("sandbox_busy", f"{name} is being worked on by another process.") from None
            time.sleep(_PAUSE)
        else:
            return
