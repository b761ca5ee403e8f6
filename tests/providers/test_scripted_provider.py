"""The scripted provider does exactly what it is told, and no fault changes more than it says."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_providers.conformance.scripted import ScriptedHarness
from sandbox_providers.contract import (
    Authority,
    CapacityGap,
    InvalidSpec,
    PermissionDenied,
    SandboxRef,
    State,
    Throttled,
    Unavailable,
)
from sandbox_providers.registry import ProviderSettings, provider_for
from sandbox_providers.scripted import Fault, ScriptedProvider, World


@pytest.fixture
def harness():
    made = ScriptedHarness()
    yield made
    made.close()


def created(harness):
    spec = harness.spec()
    return spec, harness.provider.create(spec, harness.secrets())


@pytest.mark.parametrize(
    ("fault", "error", "exists"),
    [
        (Fault.LOST_REQUEST, Unavailable, False),
        (Fault.LOST_RESPONSE, Unavailable, True),
        (Fault.THROTTLED, Throttled, False),
        (Fault.DENIED, PermissionDenied, False),
        (Fault.NO_CAPACITY, CapacityGap, False),
    ],
)
def test_a_fault_of_create_has_its_error_and_its_effect(harness, fault, error, exists):
    harness.world.plan("create", fault)
    spec = harness.spec()
    with pytest.raises(error):
        harness.provider.create(spec, harness.secrets())
    assert (spec.name in harness.world.boxes) is exists


def test_a_fault_is_used_up_by_one_call(harness):
    harness.world.plan("create", Fault.LOST_REQUEST)
    spec = harness.spec()
    with pytest.raises(Unavailable):
        harness.provider.create(spec, harness.secrets())
    assert harness.provider.create(spec, harness.secrets()).name == spec.name


def test_faults_of_one_verb_leave_the_others_alone(harness):
    _, ref = created(harness)
    harness.world.plan("terminate", Fault.LOST_REQUEST)
    assert harness.provider.observe(ref).state is State.READY


def test_faults_come_in_the_order_in_which_they_were_planned(harness):
    _, ref = created(harness)
    harness.world.plan("observe", Fault.THROTTLED, Fault.DENIED)
    with pytest.raises(Throttled):
        harness.provider.observe(ref)
    with pytest.raises(PermissionDenied):
        harness.provider.observe(ref)
    assert harness.provider.observe(ref).state is State.READY


def test_a_late_answer_has_its_effect_at_once_and_comes_when_released(harness):
    harness.world.plan("create", Fault.LATE)
    spec = harness.spec()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(harness.provider.create, spec, harness.secrets())
        noted = threading.Event()
        while not harness.world.history:
            noted.wait(0.001)
        assert spec.name in harness.world.boxes
        assert not answer.done()
        harness.world.release()
        assert answer.result(60).name == spec.name


def test_a_stale_read_that_has_never_heard_of_it_is_no_verdict(harness):
    _, ref = created(harness)
    harness.world.plan("observe", Fault.SAYS_ABSENT)
    seen = harness.provider.observe(ref)
    assert (seen.state, seen.authoritative) == (State.ABSENT, False)
    assert harness.provider.observe(ref).state is State.READY


def test_a_stale_read_says_what_was_said_before(harness):
    spec, ref = created(harness)
    assert harness.provider.observe(ref).state is State.READY
    harness.world.kill(spec.name)
    harness.world.plan("observe", Fault.SAYS_AS_BEFORE)
    assert harness.provider.observe(ref).state is State.READY
    assert harness.provider.observe(ref).state is State.LOST


def test_a_provider_that_is_down_answers_nothing_and_does_nothing(harness):
    spec, ref = created(harness)
    harness.world.down = True
    calls = [
        lambda: harness.provider.create(harness.spec(), harness.secrets()),
        lambda: harness.provider.observe(ref),
        lambda: harness.provider.terminate(ref, reason="x"),
        lambda: harness.provider.withdraw_secret(ref),
        lambda: harness.provider.clean_up(ref, Authority(task=spec.task_id, reason="person_deleted")),
        lambda: list(harness.provider.list_owned()),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            call()
    harness.world.down = False
    assert set(harness.world.boxes) == {spec.name}
    assert harness.provider.observe(ref).state is State.READY


def test_the_history_tells_what_took_place_and_what_the_caller_learnt(harness):
    harness.world.plan("create", Fault.LOST_REQUEST, Fault.LOST_RESPONSE)
    spec = harness.spec()
    for _ in range(2):
        with pytest.raises(Unavailable):
            harness.provider.create(spec, harness.secrets())
    harness.provider.create(spec, harness.secrets())
    assert [(done.outcome, done.effect) for done in harness.world.history] == [
        ("unknown", False),
        ("unknown", True),
        ("ok", True),
    ]


def test_sandboxes_may_start_slowly(harness):
    harness.world.first_state = State.PENDING
    spec, ref = created(harness)
    assert harness.provider.observe(ref).state is State.PENDING
    harness.world.change(spec.name, State.READY)
    assert harness.provider.observe(ref).state is State.READY


def test_providers_of_one_state_directory_share_a_world_and_others_do_not(harness):
    spec, ref = created(harness)
    assert ref in list(harness.again().list_owned())
    elsewhere = ScriptedProvider(ProviderSettings(state_dir=Path("/nowhere/else")))
    assert list(elsewhere.list_owned()) == []
    World.forget(Path("/nowhere/else"))
    assert spec.name in harness.world.boxes


def test_a_secret_is_held_until_it_is_withdrawn(harness):
    spec, ref = created(harness)
    assert harness.world.boxes[spec.name].secrets == harness.secrets()
    harness.provider.withdraw_secret(ref)
    assert harness.world.boxes[spec.name].secrets is None


# --- the register of providers ---------------------------------------------------------------------------------------


def test_an_unknown_provider_is_named_with_those_that_are_installed(tmp_path):
    with pytest.raises(InvalidSpec, match=r"'other'.*local, scripted") as caught:
        provider_for("other", ProviderSettings(state_dir=tmp_path))
    assert caught.value.code == "provider_unknown"


def test_a_reference_that_is_none_is_refused(harness):
    with pytest.raises(InvalidSpec):
        SandboxRef.from_json({"name": "x"})


def test_a_reference_to_an_earlier_life_is_told_apart(harness):
    _, ref = created(harness)
    assert harness.provider.observe(replace(ref, instance="earlier")).cause == "replaced"
    assert harness.provider.observe(replace(ref, uid="earlier")).cause == "name_reused"
