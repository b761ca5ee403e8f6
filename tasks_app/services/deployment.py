"""Notice that the database was restored from a backup, and stay in safe mode until a person confirms it.

The deployment counts its epochs in two places, in the database and in a file of the state directory, and goes one on
every half minute. A backup of one of them is older than the other. In safe mode nothing is done that cannot be undone.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction

from sandbox_supervisor.protocol import codec, handover
from tasks_app.errors import SafeMode
from tasks_app.kernel import SOUND, Epoch, Epochs, Standing, judge_epochs
from tasks_app.models import Deployment
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.services import audit
from workspaces_app.states import Verb

log = structlog.get_logger()

CONFIRM = "./caisson confirm-database"
WORDS = {
    Standing.DATABASE_BEHIND: "The database is older than the state directory: it was restored from a backup.",
    Standing.KEPT_BEHIND: "The state directory is older than the database: it was restored from a backup.",
    Standing.OTHER_HISTORY: "The database and the state directory do not belong together: one of them was restored "
    "from a backup, or is that of another deployment.",
    Standing.MISSING: "The state directory does not know this database: the database was restored from a backup, or "
    "the file that tells is gone.",
    Standing.UNREADABLE: "Whether the database was restored from a backup is not known: the file that tells cannot be "
    "read.",
}

_told: Standing | None = None  # what the log of this process was told last


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The epochs and what they mean; ``words`` say what is wrong, and are empty when nothing is."""

    epochs: Epochs
    standing: Standing

    @property
    def sound(self) -> bool:
        return self.standing in SOUND

    @property
    def words(self) -> str:
        return WORDS.get(self.standing, "")


def place() -> Path:
    """Give the path of the file that keeps the epoch."""
    return Path(settings.STATE_DIR) / "deployment" / "epoch"


def look() -> Sight:
    """Compare the epochs as they are at this moment, in the caller's transaction if there is one.

    The file is read first: a step that is taken between the two readings is then one that was cut, which is sound.
    Whoever slept through more steps than one finds another file there afterwards, and compares again.
    """
    kept = _kept()
    while True:
        epochs = Epochs(database=_in_database(), kept=kept[0], trouble=kept[1])
        sight = Sight(epochs=epochs, standing=judge_epochs(epochs))
        before, kept = kept, kept if sight.sound else _kept()
        if kept == before:
            return sight


def require_sound() -> None:
    """Raise SafeMode when the database may have been restored: to be asked right before what cannot be undone."""
    sight = look()
    if not sight.sound:
        raise SafeMode(f"{sight.words} This waits until somebody confirms the database: {CONFIRM}.")


def sweep() -> None:
    """Go one epoch on, and tell the log once when that cannot be."""
    advance()
    _tell(look())


def advance() -> None:
    """Go one epoch on, in the database first; nothing is written in safe mode.

    Safe to race and to be killed anywhere: the next call makes up for a step that was cut. Raises OSError.
    """
    with _alone(fcntl.LOCK_EX | fcntl.LOCK_NB) as ours:
        if not ours:
            return
        sight = look()
        if not sight.sound:
            return
        here = sight.epochs.database or _begin()
        if sight.epochs.kept != here:
            _keep(here)
        step = Epoch(history=here.history, number=here.number + 1)
        if Deployment.objects.filter(history=here.history, epoch=here.number).update(epoch=step.number):
            _keep(step)


def confirm(*, by: Actor) -> None:
    """Take the database as the one to go on with: a new history begins, in both places. Leaves a trace.

    Without safe mode nothing changes. When it is cut between the two, safe mode stays and it may be repeated. Raises
    NotVisible, Forbidden, OSError.
    """
    authorise(by, Permission.CONFIRM_DATABASE)
    with _alone(fcntl.LOCK_EX):
        sight = look()
        if sight.sound:
            return
        here = Epoch(history=secrets.token_hex(16), number=1)
        with transaction.atomic():
            Deployment.objects.update_or_create(pk=1, defaults={"history": here.history, "epoch": here.number})
            before = {"standing": sight.standing} | codec.plain(sight.epochs)
            after = codec.plain(here)
            verb = Verb.DATABASE_CONFIRMED
            audit.record(by, verb, kind="deployment", object_id=here.history, before=before, after=after)
        _keep(here)
    log.info("database_confirmed", by=by.label, standing=sight.standing)


def forget() -> None:
    """Let the next start be a first one: for a database that outlives its state directory on purpose."""
    Deployment.objects.all().delete()


def _in_database() -> Epoch | None:
    row = Deployment.objects.filter(pk=1).first()
    return Epoch(history=row.history, number=row.epoch) if row else None


def _begin() -> Epoch:
    row, _ = Deployment.objects.get_or_create(pk=1, defaults={"history": secrets.token_hex(16)})
    return Epoch(history=row.history, number=row.epoch)


def _kept() -> tuple[Epoch | None, str]:
    try:
        return handover.read(place(), Epoch), ""
    except codec.Malformed as error:
        return None, f"it is damaged: {error}"
    except OSError as error:
        return None, str(error.strerror or error)


def _keep(epoch: Epoch) -> None:
    """Write the file, whole and for good. The lock is ours."""
    handover.replace(place(), epoch)
    folder = os.open(place().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _alone(how: int) -> Iterator[bool]:
    """Let one process at a time take a step; False while another one does."""
    place().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(place().with_name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield _locked(lock, how)
    finally:
        os.close(lock)


def _locked(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        return False
    return True


def _tell(sight: Sight) -> None:
    global _told  # noqa: PLW0603 - one memory per process
    if sight.standing == _told:
        return
    if not sight.sound:
        log.error("safe_mode", why=sight.words, epochs=codec.plain(sight.epochs), file=str(place()), fix=CONFIRM)
    _told = sight.standing
