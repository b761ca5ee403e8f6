"""The epochs of a deployment: steps in two places, what a restore does to them, and a person's confirmation."""

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from sandbox_supervisor.protocol import codec, handover
from tasks_app.errors import Forbidden, NotVisible, SafeMode
from tasks_app.kernel import Epoch, Standing
from tasks_app.models import Deployment
from tasks_app.services import deployment, sweeps
from tests.tasks.delivery.test_delivery_crashes import in_a_process
from tests.tasks.lifecycle.restoring import fall_behind, numbers, standing
from workspaces_app.access import Actor
from workspaces_app.models import AuditEvent
from workspaces_app.states import Verb


@pytest.fixture(autouse=True)
def state(settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path / "state"


@pytest.fixture
def begun(house):
    """A house whose deployment has taken some steps."""
    for _ in range(3):
        deployment.advance()
    return house


class TestSteps:
    def test_a_first_start_begins_and_is_sound(self, db):
        assert standing() is Standing.BEGINS
        deployment.advance()
        assert (standing(), numbers()) == (Standing.AGREES, (1, 1))

    def test_every_step_is_kept_in_both_places(self, begun):
        assert numbers() == (3, 3)

    def test_the_sweep_takes_a_step(self, db):
        sweeps.run("epoch")
        assert numbers() == (1, 1)

    def test_a_step_that_was_cut_is_no_restore_and_is_made_up_for(self, begun):
        Deployment.objects.update(epoch=4)
        assert deployment.look().sound
        deployment.advance()
        assert numbers() == (5, 5)

    def test_a_first_start_that_was_cut_before_its_file_begins_again(self, db):
        deployment.advance()
        Deployment.objects.update(epoch=0)
        deployment.place().unlink()
        assert deployment.look().sound
        deployment.advance()
        assert numbers() == (1, 1)

    def test_a_disk_that_takes_no_file_never_lets_the_database_go_on_alone(self, begun, monkeypatch):
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(handover, "replace", full)
            for _ in range(3):
                with pytest.raises(OSError, match="No space"):
                    deployment.advance()
        assert numbers() == (4, 3)
        deployment.advance()
        assert numbers() == (5, 5)

    def test_the_file_is_private(self, begun):
        assert deployment.place().stat().st_mode & 0o077 == 0

    def test_one_process_at_a_time_takes_a_step(self, begun):
        with deployment._alone(fcntl.LOCK_EX):
            deployment.advance()
        assert numbers() == (3, 3)

    @pytest.mark.parametrize("steps", [1, 2, 3])
    def test_steps_that_are_taken_while_somebody_looks_are_no_restore(self, begun, monkeypatch, steps):
        """Whichever of the two is read first, the steps come after it."""
        taken: list[bool] = []

        def then_a_step(read: Callable[[], Any]) -> Callable[[], Any]:
            def reading() -> Any:
                found = read()
                if not taken:
                    taken.append(True)
                    for _ in range(steps):
                        deployment.advance()
                return found

            return reading

        monkeypatch.setattr(deployment, "_kept", then_a_step(deployment._kept))
        monkeypatch.setattr(deployment, "_in_database", then_a_step(deployment._in_database))
        assert deployment.look().sound
        assert numbers() == (3 + steps, 3 + steps)


@pytest.mark.django_db(transaction=True)
class TestManyAtOnce:
    def test_many_workers_take_steps_and_none_of_them_looks_like_a_restore(self, db):
        deployment.advance()
        seen: list[bool] = []

        def work() -> None:
            try:
                for _ in range(10):
                    deployment.advance()
                    seen.append(deployment.look().sound)
            finally:
                connections.close_all()

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=60)
        assert len(seen) == 40
        assert all(seen)
        assert numbers()[0] == numbers()[1]

    @pytest.mark.parametrize("after", [False, True], ids=["before the file", "after the file"])
    def test_a_worker_killed_in_a_step_leaves_one_that_the_next_makes_up_for(self, db, after):
        deployment.advance()

        def killed() -> None:
            write = handover.replace

            def dying(path: Path, value: object) -> None:
                if after:
                    write(path, value)
                os.kill(os.getpid(), signal.SIGKILL)

            handover.replace = dying
            deployment.advance()

        assert os.WIFSIGNALED(in_a_process(killed))
        assert deployment.look().sound
        deployment.advance()
        assert deployment.look().sound
        assert numbers()[0] == numbers()[1]


class TestNoticing:
    def test_an_older_database(self, begun):
        fall_behind()
        assert standing() is Standing.DATABASE_BEHIND

    def test_an_older_state_directory(self, begun):
        old = deployment.place().read_bytes()
        for _ in range(2):
            deployment.advance()
        deployment.place().write_bytes(old)
        assert standing() is Standing.KEPT_BEHIND

    def test_an_empty_state_directory(self, begun):
        deployment.place().unlink()
        assert standing() is Standing.MISSING

    def test_a_fresh_database_over_an_old_state_directory(self, begun):
        Deployment.objects.all().delete()
        assert standing() is Standing.OTHER_HISTORY

    def test_a_backup_from_before_there_were_epochs(self, begun):
        """Its upgrade makes the table anew, without a row."""
        Deployment.objects.all().delete()
        deployment.advance()
        assert standing() is Standing.OTHER_HISTORY

    @pytest.mark.parametrize(
        "content",
        [b"", b"\xff\xfe", b"{", b"[]", b"{}", b'{"history": "a", "number": "3"}', b'{"history": 1, "number": 3}'],
    )
    def test_a_file_that_is_damaged(self, begun, content):
        deployment.place().write_bytes(content)
        assert standing() is Standing.UNREADABLE
        assert "damaged" in deployment.look().epochs.trouble

    def test_a_folder_in_the_place_of_the_file(self, begun):
        deployment.place().unlink()
        deployment.place().mkdir()
        assert (standing(), deployment.look().epochs.trouble) == (Standing.UNREADABLE, "Is a directory")

    def test_a_number_that_is_nonsense(self, begun):
        history = Deployment.objects.get().history
        for number in (-5, 2**70):
            deployment.place().write_bytes(codec.encode({"history": history, "number": number}))
            assert not deployment.look().sound

    def test_nothing_is_written_in_safe_mode_and_the_log_is_told_once(self, begun, caplog):
        deployment.sweep()  # what this process was told before is of no account
        fall_behind(2)
        for _ in range(3):
            deployment.sweep()
        assert numbers() == (2, 4)
        (line,) = [record.msg for record in caplog.records if record.name == deployment.__name__]
        assert line["event"] == "safe_mode"
        assert line["file"] == str(deployment.place())
        assert line["fix"] == deployment.CONFIRM


class TestConfirming:
    def test_both_places_agree_on_a_new_history(self, begun):
        before = Deployment.objects.get().history
        fall_behind()
        deployment.confirm(by=begun.actor)
        assert (standing(), numbers()) == (Standing.AGREES, (1, 1))
        assert Deployment.objects.get().history != before
        deployment.advance()
        assert numbers() == (2, 2)

    def test_it_leaves_a_trace_with_what_was_found(self, begun):
        fall_behind(2)
        deployment.confirm(by=begun.actor)
        event = AuditEvent.objects.get(verb=Verb.DATABASE_CONFIRMED)
        before, after = event.before or {}, event.after or {}
        assert event.actor == begun.actor.label
        assert (before["standing"], before["database"]["number"]) == ("database_behind", 1)
        assert after["number"] == 1

    def test_without_safe_mode_nothing_changes(self, begun):
        deployment.confirm(by=begun.actor)
        assert numbers() == (3, 3)
        assert not AuditEvent.objects.filter(verb=Verb.DATABASE_CONFIRMED).exists()

    @pytest.mark.parametrize(
        ("actor", "refusal"),
        [
            (Actor(label="user:ada", user_id=7), NotVisible),
            (Actor(label="user:bob", user_id=8, is_staff=True), Forbidden),
        ],
    )
    def test_only_those_who_hold_the_permission_may(self, begun, actor, refusal):
        fall_behind()
        with pytest.raises(refusal):
            deployment.confirm(by=actor)
        assert standing() is Standing.DATABASE_BEHIND

    @pytest.mark.parametrize("damage", ["missing", "damaged", "other", "fresh"])
    def test_every_kind_of_disagreement_ends(self, begun, damage):
        match damage:
            case "missing":
                deployment.place().unlink()
            case "damaged":
                deployment.place().write_bytes(b"{")
            case "other":
                handover.replace(deployment.place(), Epoch(history="b", number=3))
            case _:
                Deployment.objects.all().delete()
        assert not deployment.look().sound
        deployment.confirm(by=begun.actor)
        assert standing() is Standing.AGREES

    def test_one_that_is_cut_between_the_two_places_leaves_safe_mode(self, begun):
        fall_behind()
        deployment.place().unlink()
        deployment.place().mkdir()
        with pytest.raises(OSError, match="directory"):
            deployment.confirm(by=begun.actor)
        assert not deployment.look().sound
        deployment.place().rmdir()
        assert not deployment.look().sound
        deployment.confirm(by=begun.actor)
        assert standing() is Standing.AGREES

    def test_a_backup_from_before_a_confirmation_is_noticed_whatever_its_number(self, begun):
        old = Deployment.objects.get()
        fall_behind()
        deployment.confirm(by=begun.actor)
        while (numbers()[1] or 0) < old.epoch:
            deployment.advance()
        Deployment.objects.update(history=old.history, epoch=old.epoch)
        assert standing() is Standing.OTHER_HISTORY

    def test_what_must_wait_says_why_and_how_to_go_on(self, begun):
        deployment.require_sound()
        fall_behind()
        with pytest.raises(SafeMode, match=r"restored from a backup.*confirm-database"):
            deployment.require_sound()
