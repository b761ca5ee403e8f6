"""What the commands say and do when the database may have been restored from a backup."""

import argparse
import io
from pathlib import Path

import pytest

from config import state
from config.commands import confirm, doctor, local, reset
from config.commands.client import Client
from config.commands.processes import Layout
from config.commands.product import ProductProblem
from tasks_app.kernel import Standing
from tasks_app.models import Deployment
from tasks_app.services import deployment
from tests.tasks.lifecycle.restoring import fall_behind
from workspaces_app.models import AuditEvent
from workspaces_app.states import Verb

pytestmark = pytest.mark.django_db


@pytest.fixture
def layout(tmp_path: Path, settings) -> Layout:
    settings.STATE_DIR = state.prepare(tmp_path / "s")
    (tmp_path / "run").mkdir()
    return Layout(checkout=Path(__file__).parents[2], state=settings.STATE_DIR, run=tmp_path / "run", port=1, threads=1)


@pytest.fixture
def restored(layout: Layout) -> None:
    """A database that is older than what the state directory tells."""
    deployment.advance()
    fall_behind()


def findings(layout: Layout) -> dict[str, doctor.Finding]:
    return {finding.what: finding for finding in doctor._database(layout)}


def test_doctor_says_what_why_and_how_to_confirm(layout, restored):
    found = findings(layout)["database"]
    assert found.words.startswith("SAFE MODE. The database is older than the state directory")
    assert deployment.CONFIRM in found.fix
    assert str(deployment.place()) in found.fix


def test_doctor_is_content_with_a_database_that_is_trusted(layout):
    found = findings(layout)
    assert list(found) == ["database"]
    assert not found["database"].fix


def test_doctor_names_sandboxes_that_no_task_has(layout):
    from sandbox_providers.local.layout import Layout as Sandboxes
    from sandbox_supervisor.protocol import folder, handover
    from tasks_app.services import providers

    place = Sandboxes(layout.state).place("stranger")
    place.mkdir(parents=True)
    names = ("key", "task_id", "uid", "digest", "image_digest", "image", "python", "tier", "tier_reason", "state")
    handover.replace(place / folder.ORDER, {"name": "stranger"} | dict.fromkeys(names, "x"))
    with providers.using("local", providers._make("local")):
        found = findings(layout)["sandbox stranger"]
    assert "no task of this database" in found.words
    assert place.exists()


def test_a_yes_confirms_and_leaves_a_trace(layout, restored, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert confirm.main(layout, argparse.Namespace(yes=False)) == 0
    said = capsys.readouterr().err
    assert "restored from a backup" in said
    assert "Deliveries that then go on: none" in said
    assert deployment.look().sound
    assert AuditEvent.objects.get(verb=Verb.DATABASE_CONFIRMED).actor == "user:admin"


def test_anything_else_confirms_nothing(layout, restored, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert confirm.main(layout, argparse.Namespace(yes=False)) == 1
    assert not deployment.look().sound


def test_there_is_nothing_to_confirm_twice(layout, restored, capsys):
    assert confirm.main(layout, argparse.Namespace(yes=True)) == 0
    epoch = Deployment.objects.get().epoch
    assert confirm.main(layout, argparse.Namespace(yes=True)) == 0
    assert "nothing to confirm" in capsys.readouterr().err
    assert Deployment.objects.get().epoch == epoch


def test_reset_deletes_nothing_in_safe_mode_and_says_so_at_once(layout, restored, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(local, "bring_up", lambda _: local.Local(started=False, url="http://localhost:1", token="t"))
    monkeypatch.setattr(reset, "_standing", lambda _: [{"id": "tsk_1"}])
    monkeypatch.setattr(Client, "delete", lambda _, path: asked.append(path))
    with pytest.raises(ProductProblem, match="safe mode"):
        reset._delete_all(layout)
    assert not asked


def test_a_database_elsewhere_begins_anew_after_a_reset(layout, monkeypatch):
    deployment.advance()
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/caisson")
    monkeypatch.setattr(reset, "_delete_all", lambda _: [])
    assert reset.main(layout, argparse.Namespace(yes=True)) == 0
    assert not layout.state.exists()
    deployment.advance()
    assert deployment.look().standing is Standing.AGREES
