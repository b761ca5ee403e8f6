"""Cases: one order, one sandbox, whatever happens on the way; and secrets reach whom they are for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sandbox_providers.conformance.cases import case
from sandbox_providers.conformance.harness import Harness, expect, leave
from sandbox_providers.contract import (
    CapacityGap,
    InvalidSpec,
    ProviderError,
    SandboxRef,
    SandboxSpec,
    SpecConflict,
    State,
)

MOST_STEPS = 50


def refused(harness: Harness, spec: SandboxSpec, kind: type[ProviderError]) -> ProviderError:
    """Create and give the error, which must be a ``kind``."""
    try:
        harness.provider.create(spec, harness.secrets())
    except kind as error:
        return error
    expect(False, f"create should have raised {kind.__name__}")
    raise AssertionError


@case
def create_returns_an_identity(harness: Harness) -> None:
    spec, ref = harness.start()
    expect(ref.name == spec.name and ref.uid and ref.provider, "the reference should name the sandbox")
    expect(ref.instance, "a started sandbox should have an instance")
    expect(harness.provider.observe(ref).instance == ref.instance, "observe should see the same instance")


@case
def a_reference_survives_json(harness: Harness) -> None:
    _, ref = harness.start()
    expect(SandboxRef.from_json(ref.to_json()) == ref, "a reference should come back as it was")


@case
def create_twice_gives_the_same_reference(harness: Harness) -> None:
    spec, ref = harness.start()
    expect(harness.provider.create(spec, harness.secrets()) == ref, "the second create should give the first sandbox")
    expect(harness.objects(spec.name) == 1, "there should be one object")


@case
def eight_concurrent_creates_make_one_sandbox(harness: Harness) -> None:
    spec = harness.spec()
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda _: harness.again().create(spec, harness.secrets()), range(8)))
    expect(len(set(refs)) == 1, "every caller should have been given the same sandbox")
    expect(harness.objects(spec.name) == 1, "there should be one object")


@case
def another_specification_conflicts_and_leaves_the_first_alone(harness: Harness) -> None:
    spec, ref = harness.start()
    refused(harness, harness.altered(spec), SpecConflict)
    expect(harness.provider.observe(ref).state is State.READY, "the first sandbox should be untouched")


@case
def a_key_has_one_name(harness: Harness) -> None:
    spec, _ = harness.start()
    other = replace(spec, name=f"{spec.name}-b")
    refused(harness, other, SpecConflict)
    expect(harness.objects(other.name) == 0, "there should be no second object")


@case
def a_lost_answer_and_a_retry_make_one_sandbox(harness: Harness) -> None:
    spec = harness.spec()
    harness.drop_answer("create", lambda: harness.provider.create(spec, harness.secrets()))
    ref = harness.again().create(spec, harness.secrets())
    harness.wait(ref, State.READY)
    expect(harness.objects(spec.name) == 1, "there should be one object")


@case
def a_lost_request_and_a_retry_make_one_sandbox(harness: Harness) -> None:
    spec = harness.spec()
    harness.drop_request("create", lambda: harness.provider.create(spec, harness.secrets()))
    harness.wait(harness.provider.create(spec, harness.secrets()), State.READY)
    expect(harness.objects(spec.name) == 1, "there should be one object")


@case
def a_create_that_dies_after_any_step_is_completed_by_the_next(harness: Harness) -> None:
    for step in range(1, MOST_STEPS):
        spec = harness.spec()
        died = harness.create_and_die(spec, step)
        ref = harness.provider.create(spec, harness.secrets())
        harness.wait(ref, State.READY)
        expect(harness.objects(spec.name) == 1, f"there should be one object after a death at step {step}")
        if not died:
            return
    expect(False, f"creation should have fewer than {MOST_STEPS} steps")


@case
def a_missing_image_is_refused_before_anything_exists(harness: Harness) -> None:
    spec = harness.spec(image_digest=harness.bad_image())
    refused(harness, spec, InvalidSpec)
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def a_wrong_digest_is_refused_before_anything_exists(harness: Harness) -> None:
    spec = replace(harness.spec(), digest="sha256:" + "0" * 64)
    refused(harness, spec, InvalidSpec)
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def lack_of_room_is_a_capacity_gap_before_anything_exists(harness: Harness) -> None:
    spec, full = harness.spec(), harness.exhaust_capacity()
    try:
        full.create(spec, harness.secrets())
    except CapacityGap as gap:
        expect(gap.code, "the gap should have a code")
    else:
        expect(False, "create should have raised CapacityGap")
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def a_failed_materialisation_is_structured_and_kept(harness: Harness) -> None:
    spec = harness.spec(specification=harness.failing_specification())
    ref = harness.provider.create(spec, harness.secrets())
    seen = harness.wait(ref, State.FAILED)
    expect(seen.authoritative and seen.reason == "materialisation_failed", "it should be a verdict with its reason")
    failure = seen.evidence.get("failure") or {}
    expect({"code", "stage", "item", "cause"} <= set(failure), "stage, item and cause should be told")
    expect(harness.objects(spec.name) == 1, "the sandbox should be kept as evidence")
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def an_ended_sandbox_is_never_started_again(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.kill_instance(ref)
    harness.wait(ref, State.LOST)
    expect(harness.provider.create(spec, harness.secrets()) == ref, "create should give the lost sandbox")
    expect(harness.provider.observe(ref).state is State.LOST, "it should still be lost")
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def a_name_that_was_cleaned_up_is_never_used_again(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.provider.terminate(ref, reason="test")
    harness.provider.clean_up(ref, leave(spec.task_id))
    refused(harness, spec, SpecConflict)
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def each_recipient_gets_exactly_its_keys(harness: Harness) -> None:
    _, ref = harness.start()
    for who, keys in harness.recipients(ref).items():
        meant = frozenset(harness.secrets().get(who, {}))
        expect(keys == meant, f"{who} should have been given {sorted(meant)}, not {sorted(keys)}")


@case
def no_secret_lies_open(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.provider.withdraw_secret(ref)
    for values in harness.secrets().values():
        for key, secret in values.items():
            found = harness.clear_text(spec.name, secret.reveal())
            expect(not found, f"{key} should lie nowhere in clear, but does in {found}")


@case
def withdrawing_the_secret_leaves_none_and_may_be_repeated(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.provider.withdraw_secret(ref)
    harness.again().withdraw_secret(ref)
    expect(not harness.has_secret(spec.name), "the provider should hold no secret")
    expect(harness.provider.observe(ref).state is State.READY, "the sandbox should run on")
