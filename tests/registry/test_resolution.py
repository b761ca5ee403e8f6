import pytest
from django.utils import timezone

from registry_app.models import DriverVersion
from registry_app.resolution import capability_digest, resolve
from registry_app.services import drivers, flows, seed
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from tests.task_rows import make_house
from workspaces_app.access import actor_of_user
from workspaces_app.errors import NotVisible
from workspaces_app.services.audit import SYSTEM
from workspaces_app.states import Role

pytestmark = pytest.mark.django_db
PLAYBOOK = "playbook: [{say: hi}]"


@pytest.fixture
def house():
    seed.ensure_shipped()
    return make_house()


def version_of(house, nodes):
    source = f"apiVersion: caisson/v1\nkind: Flow\nname: f\nnodes:\n{nodes}\n"
    by = actor_of_user(house.user(Role.MAINTAINER))
    newest = flows.newest_version("f", house.workspace)
    return flows.publish_flow(source, workspace=house.workspace, by=by, based_on=newest.number if newest else None)


def resolved(house, nodes):
    return resolve(version_of(house, nodes), workspace_id=house.workspace.pk)


def gaps(house, nodes):
    return [(gap.kind, gap.reference, gap.wanted_by) for gap in resolved(house, nodes).gaps]


def test_a_flow_without_references_needs_nothing(house):
    found = resolved(house, "  - {key: a, command: {run: make}}")
    assert (found.capabilities, found.gaps, found.drivers) == ((), (), {})


def test_a_driver_is_pinned_to_its_newest_version(house):
    found = resolved(house, f"  - {{key: a, agent: {{driver: scripted, prompt: x, {PLAYBOOK}}}}}")
    (capability,) = found.capabilities
    stored = DriverVersion.objects.get()
    assert (capability.kind, capability.reference, capability.version, capability.digest) == (
        "driver", "scripted", "scripted@1", stored.digest,
    )  # fmt: skip
    assert found.drivers == {"scripted": stored.entry}


def test_a_version_may_be_named(house):
    drivers.store_driver(
        DriverEntry(name="scripted", protocol=DriverProtocol.SCRIPTED, memory_reserve=1), description="", by=SYSTEM
    )
    found = resolved(house, f"  - {{key: a, agent: {{driver: scripted@1, prompt: x, {PLAYBOOK}}}}}")
    assert found.capabilities[0].version == "scripted@1"
    assert found.drivers["scripted@1"].memory_reserve == 0


def test_every_gap_is_named_at_once_with_who_wants_it(house):
    nodes = """
  - {key: a, agent: {driver: opencode, model: main, prompt: x, skills: [s1, s2]}}
  - {key: b, agent: {driver: opencode, model: main, prompt: x, extensions: [e], resources: [r]}}
  - {key: c, agent: {driver: scripted@9, prompt: x, playbook: [{say: x}]}}"""
    assert gaps(house, nodes) == [
        ("driver", "opencode", ("a", "b")),
        ("driver", "scripted@9", ("c",)),
        ("extension", "e", ("b",)),
        ("model", "main", ("a", "b")),
        ("resource", "r", ("b",)),
        ("skill", "s1", ("a",)),
        ("skill", "s2", ("a",)),
    ]


def test_a_gap_says_why_and_what_to_do(house):
    (gap,) = resolved(house, "  - {key: a, agent: {driver: scriptd, prompt: x}}").gaps
    assert gap.reason == "The registry has no driver 'scriptd'."
    assert gap.hint == "Did you mean 'scripted'?"


def test_a_withdrawn_driver_is_a_gap(house):
    DriverVersion.objects.update(yanked_at=timezone.now())
    assert gaps(house, f"  - {{key: a, agent: {{driver: scripted, prompt: x, {PLAYBOOK}}}}}") == [
        ("driver", "scripted", ("a",))
    ]


def test_a_withdrawn_flow_is_a_gap(house):
    version = version_of(house, "  - {key: a, command: {run: make}}")
    flows.yank_flow(version, because="wrong", by=actor_of_user(house.user(Role.MAINTAINER)), now=timezone.now())
    version.refresh_from_db()
    (gap,) = resolve(version, workspace_id=house.workspace.pk).gaps
    assert (gap.kind, gap.reference) == ("flow", "f@1")
    assert "wrong" in gap.reason


def test_a_playbook_for_a_driver_that_cannot_play_is_a_gap(house):
    drivers.store_driver(
        DriverEntry(name="opencode", protocol=DriverProtocol.ACP, command=("opencode",)), description="", by=SYSTEM
    )
    (gap,) = resolved(house, f"  - {{key: a, agent: {{driver: opencode, prompt: x, {PLAYBOOK}}}}}").gaps
    assert "cannot play a playbook" in gap.reason


def test_a_pinned_scripted_driver_without_a_playbook_is_a_gap(house):
    (gap,) = resolved(house, "  - {key: a, agent: {driver: scripted@1, prompt: x}}").gaps
    assert "have none" in gap.reason


def test_a_flow_of_another_workspace_is_not_visible(house):
    version = version_of(house, "  - {key: a, command: {run: make}}")
    with pytest.raises(NotVisible):
        resolve(version, workspace_id=make_house("other").workspace.pk)


def test_a_flow_of_the_deployment_serves_every_workspace(house):
    for version in seed.ensure_shipped():
        assert resolve(version, workspace_id=house.workspace.pk).gaps == ()


def test_resolving_takes_a_fixed_number_of_queries(house, django_assert_num_queries):
    nodes = "\n".join(f"  - {{key: n{i}, agent: {{driver: d{i}, prompt: x}}}}" for i in range(50))
    version = version_of(house, nodes)
    with django_assert_num_queries(1):
        resolve(version, workspace_id=house.workspace.pk)


def test_equal_things_give_equal_digests_and_any_difference_shows(house):
    found = resolved(house, f"  - {{key: a, agent: {{driver: scripted, prompt: x, {PLAYBOOK}}}}}")
    bare = resolved(house, "  - {key: a, command: {run: make}}")

    def digest(resolution=found, flow="sha256:f", policy=None):
        return capability_digest(resolution, flow_digest=flow, policy=policy or {"revision": 1})

    assert digest() == digest()
    assert len({digest(), digest(bare), digest(flow="sha256:g"), digest(policy={"revision": 2})}) == 4
