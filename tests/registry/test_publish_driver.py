import threading
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from registry_app.errors import DriverInvalid
from registry_app.models import Driver, DriverVersion
from registry_app.services import drivers, seed
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from tests.task_rows import make_house
from workspaces_app.access import actor_of_user
from workspaces_app.errors import Conflict, Forbidden, NotVisible
from workspaces_app.models import AuditEvent
from workspaces_app.services import bootstrap
from workspaces_app.states import Role, Verb

pytestmark = pytest.mark.django_db


def entry(*command: str, name: str = "opencode", **more) -> DriverEntry:
    return DriverEntry(name=name, protocol=DriverProtocol.ACP, command=command or ("opencode", "acp"), **more)


@pytest.fixture
def admin():
    return actor_of_user(bootstrap.ensure_workspace_and_admin().admin)


def publish(by, made: DriverEntry | None = None, description: str = "") -> DriverVersion:
    return drivers.publish_driver(made or entry(), description=description, by=by)


def wrong(by, made: DriverEntry) -> str:
    with pytest.raises(DriverInvalid) as caught:
        publish(by, made)
    assert not Driver.objects.filter(name=made.name).exists()
    return caught.value.message


def test_a_published_driver_can_be_read_back_and_is_in_the_audit_trail(admin):
    version = publish(admin, entry("agent", env={"A": "b"}, memory_reserve=5))
    assert version.entry == entry("agent", env={"A": "b"}, memory_reserve=5)
    assert AuditEvent.objects.get(verb=Verb.DRIVER_PUBLISHED).object_id == version.pk


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (entry(name="Open Code"), "lower-case"),
        (entry(name="open\n"), "lower-case"),
        (entry(""), "command is missing"),
        (entry("a\0b"), "NUL"),
        (entry("a", "\udc80"), "no UTF-8"),
        (entry("a", "x" * 20_000), "16384 characters"),
        (entry(*["a"] * 101), "100 words"),
        (entry("a", env={"1A": "x"}), "'1A' is not the name"),
        (entry("a", env={"A\n": "x"}), "is not the name"),
        (entry("a", env={"HOME": "/root"}), "HOME is set by the attempt"),
        (entry("a", env={"CAISSON_RESULT": "x"}), "CAISSON_RESULT is set"),
        (entry("a", memory_reserve=-1), "not negative"),
    ],
)
def test_an_entry_that_no_sandbox_could_use_is_refused_with_the_reason(admin, made, told):
    assert told in wrong(admin, made)


def test_everything_that_is_wrong_is_told_at_once(admin):
    said = wrong(admin, entry("", name="X", env={"HOME": "x", "-": "y"}))
    assert all(word in said for word in ("'X'", "command is missing", "HOME", "'-'"))


def test_the_name_of_a_shipped_driver_is_not_taken_over(admin):
    seed.ensure_shipped()
    with pytest.raises(DriverInvalid, match="comes with the product"):
        publish(admin, entry(name="scripted"))
    assert DriverVersion.objects.count() == 1


def test_another_protocol_cannot_be_published(admin):
    assert "comes with the product" in wrong(admin, DriverEntry(name="mine", protocol=DriverProtocol.SCRIPTED))


def test_a_new_description_replaces_the_old_one_and_an_empty_one_does_not(admin):
    for description in ("first", "second", ""):
        publish(admin, description=description)
    assert Driver.objects.get(name="opencode").description == "second"


def test_an_entry_that_was_withdrawn_does_not_come_back_unnoticed(admin):
    publish(admin)
    DriverVersion.objects.update(yanked_at=timezone.now(), yanked_because="it ate the disk")
    with pytest.raises(Conflict, match="it ate the disk"):
        publish(admin)


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MAINTAINER])
def test_being_admin_of_a_workspace_is_not_enough(role):
    with pytest.raises((Forbidden, NotVisible)):
        publish(actor_of_user(make_house().user(role)))


@pytest.mark.django_db(transaction=True)
def test_publications_at_one_moment_get_numbers_of_their_own_or_a_conflict():
    by = actor_of_user(bootstrap.ensure_workspace_and_admin().admin)
    publish(by)
    barrier = threading.Barrier(3, timeout=20)
    outcomes: list[object] = []

    def race(word):
        barrier.wait()
        try:
            outcomes.append(publish(by, entry("opencode", word)).number)
        except Conflict as error:
            outcomes.append(error.code)
        finally:
            connection.close()

    racers = [threading.Thread(target=race, args=(word,)) for word in ("one", "two", "three")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=60)
    numbers = sorted(one for one in outcomes if isinstance(one, int))
    assert len(outcomes) == 3
    assert numbers == list(range(2, 2 + len(numbers)))
    assert {one for one in outcomes if not isinstance(one, int)} <= {"driver_moved"}
    assert numbers


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_publishes_what_stands_behind_the_dashes(admin, capsys):
    call_command("publish_driver", "mine", "--env", "A=b=c", "--memory", "512Mi", "--", "python3", "-m", "agent")
    assert capsys.readouterr().out.startswith("mine@1 sha256:")
    found = DriverVersion.objects.get().entry
    assert found == entry("python3", "-m", "agent", name="mine", env={"A": "b=c"}, memory_reserve=512 * 2**20)


def test_the_command_warns_of_what_looks_like_a_key(admin, capsys):
    call_command("publish_driver", "mine", "--env", "MODEL_API_KEY=none", "--", "agent")
    assert "MODEL_API_KEY" in capsys.readouterr().err


def test_the_command_warns_of_a_program_that_no_isolated_sandbox_sees(admin, capsys, tmp_path):
    (tmp_path / "elsewhere").symlink_to("/var/tmp/agent")
    call_command(
        "publish_driver", "a", "--", str(Path.home() / "bin/node"), "/opt/agent.js", str(tmp_path / "elsewhere")
    )
    told = capsys.readouterr().err
    assert f"{Path.home()}/bin/node lies below {Path.home()}" in told
    assert f"{tmp_path}/elsewhere lies below /var/tmp" in told
    assert "/opt/agent.js lies" not in told


def test_the_command_says_when_an_older_entry_is_not_what_flows_will_get(admin, capsys):
    for word in ("one", "two", "one"):
        call_command("publish_driver", "mine", "--", word)
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("mine@1 ")
    assert "flows mean mine@2" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mine", "--env", "A", "--", "x"], "write NAME=VALUE"),
        (["mine", "--memory", "much", "--", "x"], "512Mi"),
        (["mine", "--user", "nobody", "--", "x"], "no such user"),
        (["MINE", "--", "x"], "lower-case"),
        (["mine"], "program"),
    ],
)
def test_the_command_refuses_with_a_sentence(admin, arguments, told):
    with pytest.raises(CommandError, match=told):
        call_command("publish_driver", *arguments)
    assert not DriverVersion.objects.exists()
