import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from registry_app.errors import FlowInvalid
from registry_app.models import DriverVersion, FlowVersion
from registry_app.services import drivers, flows, seed
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from tests.task_rows import make_house
from workspaces_app.access import actor_of_user
from workspaces_app.errors import Conflict, Forbidden, NotVisible
from workspaces_app.models import AuditEvent
from workspaces_app.services import bootstrap
from workspaces_app.states import Role, Verb

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def text(command="make"):
    return f"apiVersion: caisson/v1\nkind: Flow\nname: build\nnodes: [{{key: a, command: {{run: {command}}}}}]\n"


@pytest.fixture
def house():
    return make_house()


@pytest.fixture
def maintainer(house):
    return actor_of_user(house.user(Role.MAINTAINER))


def publish(house, by, source=None, based_on=None):
    return flows.publish_flow(source or text(), workspace=house.workspace, by=by, based_on=based_on)


def test_a_flow_gets_its_first_version(house, maintainer):
    version = publish(house, maintainer)
    assert (version.number, version.flow.name, version.compiled.nodes[0].key) == (1, "build", "a")
    assert version.source == text()


def test_the_same_meaning_again_is_the_same_version(house, maintainer):
    first = publish(house, maintainer)
    assert publish(house, maintainer, "# a comment\n" + text(), based_on=None) == first


def test_a_change_is_the_next_version_and_the_first_stays(house, maintainer):
    first = publish(house, maintainer)
    second = publish(house, maintainer, text("test"), based_on=1)
    first.refresh_from_db()
    assert (second.number, first.compiled.nodes[0].command.run) == (2, "make")


@pytest.mark.parametrize("based_on", [None, 1, 3])
def test_an_edit_based_on_another_version_loses_nothing(house, maintainer, based_on):
    publish(house, maintainer)
    publish(house, maintainer, text("test"), based_on=1)
    with pytest.raises(Conflict) as caught:
        publish(house, maintainer, text("mine"), based_on=based_on)
    assert caught.value.facts == {"based_on": based_on, "current": 2}


def test_a_flow_that_does_not_compile_is_refused_with_everything(house, maintainer):
    with pytest.raises(FlowInvalid) as caught:
        publish(house, maintainer, "name: 1\n")
    assert len(caught.value.problems) == len(caught.value.facts["problems"]) == 4
    assert FlowVersion.objects.filter(flow__name="build").count() == 0


def test_an_operator_may_not_publish(house):
    with pytest.raises(Forbidden):
        publish(house, actor_of_user(house.user(Role.OPERATOR)))


def test_a_maintainer_of_another_workspace_does_not_see_this_one(house):
    with pytest.raises(NotVisible):
        publish(house, actor_of_user(make_house("other").user(Role.MAINTAINER)))


def test_only_people_of_the_deployment_publish_for_all(house, maintainer):
    with pytest.raises(NotVisible):
        flows.publish_flow(text(), workspace=None, by=maintainer, based_on=None)


def test_two_workspaces_may_have_a_flow_of_one_name(house, maintainer):
    other = make_house("other")
    theirs = publish(other, actor_of_user(other.user(Role.MAINTAINER)), text("test"))
    assert publish(house, maintainer).flow != theirs.flow


def test_a_workspace_sees_its_own_flows_and_those_of_the_deployment(house, maintainer):
    mine = publish(house, maintainer)
    shipped = seed.ensure_shipped()
    other = make_house("other")
    visible = FlowVersion.objects.visible_to([house.workspace.pk])
    assert {mine, *shipped} <= set(visible)
    assert not visible.filter(flow__workspace=other.workspace).exists()


def test_a_withdrawn_version_is_hidden_from_new_tasks_and_kept(house, maintainer):
    version = publish(house, maintainer)
    for _ in range(2):
        flows.yank_flow(version, because="wrong command", by=maintainer, now=NOW)
    version.refresh_from_db()
    assert (version.yanked_at, version.yanked_because) == (NOW, "wrong command")
    assert version not in FlowVersion.objects.usable()
    assert AuditEvent.objects.filter(verb=Verb.FLOW_YANKED).count() == 1


def test_publishing_after_a_withdrawal_makes_a_new_version(house, maintainer):
    flows.yank_flow(publish(house, maintainer), because="x", by=maintainer, now=NOW)
    assert publish(house, maintainer, based_on=1).number == 2


@pytest.mark.parametrize("column", ["source", "canonical", "digest", "number", "flow_id", "created_at"])
@pytest.mark.parametrize("model", [FlowVersion, DriverVersion])
def test_what_a_version_says_cannot_be_changed(model, column):
    seed.ensure_shipped()
    if not hasattr(model, column) and column == "source":
        column = "id"
    name = "driver_id" if model is DriverVersion and column == "flow_id" else column
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {model._meta.db_table} SET {name} = {name}")  # noqa: S608


@pytest.mark.parametrize("model", [FlowVersion, DriverVersion])
def test_a_version_cannot_be_deleted(model):
    seed.ensure_shipped()
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")  # noqa: S608


def test_what_ships_is_published_once():
    first = seed.ensure_shipped()
    assert [version.flow.name for version in first] == ["demo", "tidy"]
    assert seed.ensure_shipped() == first
    assert DriverVersion.objects.get().entry.protocol is DriverProtocol.SCRIPTED


def test_a_driver_that_changed_gets_the_next_version():
    admin = actor_of_user(bootstrap.ensure_workspace_and_admin().admin)
    entry = DriverEntry(name="opencode", protocol=DriverProtocol.ACP, command=("opencode", "acp"))
    first = drivers.publish_driver(entry, description="", by=admin)
    assert drivers.publish_driver(entry, description="", by=admin) == first
    changed = DriverEntry(name="opencode", protocol=DriverProtocol.ACP, command=("opencode", "acp", "--quiet"))
    assert drivers.publish_driver(changed, description="", by=admin).number == 2


def test_a_member_may_not_publish_a_driver(maintainer):
    with pytest.raises(NotVisible):
        drivers.publish_driver(seed.SCRIPTED, description="", by=maintainer)


@pytest.mark.django_db(transaction=True)
def test_of_two_authors_at_one_moment_exactly_one_wins():
    house = make_house()
    by = actor_of_user(house.user(Role.MAINTAINER))
    publish(house, by)
    barrier = threading.Barrier(3, timeout=20)
    outcomes = []

    def race(command):
        barrier.wait()
        try:
            publish(house, by, text(command), based_on=1)
            outcomes.append("published")
        except Conflict:
            outcomes.append("conflict")
        finally:
            connection.close()

    racers = [threading.Thread(target=race, args=(command,)) for command in ("one", "two", "three")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=60)
    assert sorted(outcomes) == ["conflict", "conflict", "published"]


# --- commands -------------------------------------------------------------------------------------------------------


def test_the_import_command_publishes_for_the_deployment(tmp_path, capsys):
    bootstrap.ensure_workspace_and_admin()
    file = tmp_path / "flow.yaml"
    file.write_text(text())
    call_command("import_flow", str(file))
    assert capsys.readouterr().out.startswith("build@1 sha256:")
    assert FlowVersion.objects.get(flow__name="build").flow.workspace is None


@pytest.mark.parametrize("name", ["import_flow", "compile_flow"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    bootstrap.ensure_workspace_and_admin()
    with pytest.raises(CommandError, match="cannot be read"):
        call_command(name, str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize("name", ["import_flow", "compile_flow"])
def test_a_command_prints_every_problem_with_its_place(name, tmp_path, capsys):
    bootstrap.ensure_workspace_and_admin()
    file = tmp_path / "flow.yaml"
    file.write_text(text().replace("command", "comand"))
    with pytest.raises(CommandError, match=r"^2 problems\.$"):
        call_command(name, str(file))
    told = capsys.readouterr().err
    assert f"{file}:4:9: node_kind at /nodes/0: Exactly one of" in told
    assert "Did you mean 'command'?" in told


def test_the_compile_command_says_how_much_a_flow_can_cost(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(text())
    call_command("compile_flow", str(file))
    assert "at most 3 attempts" in capsys.readouterr().out


def test_the_token_command_prints_a_token_that_works(capsys):
    from workspaces_app.services import tokens

    first = bootstrap.ensure_workspace_and_admin()
    call_command("create_token")
    actor = tokens.recognise(capsys.readouterr().out.strip(), address="127.0.0.1", now=timezone.now())
    assert actor.user_id == first.admin.pk
