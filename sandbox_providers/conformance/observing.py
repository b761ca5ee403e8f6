"""Cases: what is said of a sandbox is true, and ignorance is never a verdict."""

from datetime import UTC, datetime, timedelta

from sandbox_providers.conformance.cases import case
from sandbox_providers.conformance.harness import Harness, expect
from sandbox_providers.contract import (
    IdentityMismatch,
    Observation,
    PermissionDenied,
    SandboxRef,
    State,
    Throttled,
    Unavailable,
)

SOON = timedelta(hours=1)


def verdict(seen: Observation, state: State) -> None:
    expect(seen.state is state and seen.authoritative, f"it should be {state} for certain, not {seen.state}")
    expect(seen.reason, "a verdict should have a reason")
    expect(seen.endpoint is None, "an ended sandbox should have no endpoint")


def is_lost(harness: Harness, ref: SandboxRef) -> None:
    verdict(harness.wait(ref, State.LOST), State.LOST)


@case
def observing_changes_nothing(harness: Harness) -> None:
    spec, ref = harness.start()
    before = harness.picture(spec.name)
    for _ in range(50):
        harness.provider.observe(ref)
    expect(harness.picture(spec.name) == before, "fifty looks should leave everything as it was")


@case
def a_sandbox_that_was_never_created_is_absent(harness: Harness) -> None:
    name = harness.spec().name
    ref = SandboxRef(provider=harness.name, version="1", name=name, uid="")
    expect(harness.provider.observe(ref).state is State.ABSENT, "it should be absent")
    expect(harness.objects(name) == 0, "looking should have made nothing")


@case
def a_ready_sandbox_has_an_endpoint(harness: Harness) -> None:
    _, ref = harness.start()
    seen = harness.provider.observe(ref)
    expect(seen.endpoint and seen.endpoint.fingerprint, "there should be an endpoint with a fingerprint")


@case
def another_process_finds_the_sandbox_and_sees_the_same(harness: Harness) -> None:
    spec, ref = harness.start()
    other = harness.again()
    expect(ref in list(other.list_owned()), "it should be listed")
    expect(other.observe(ref) == harness.provider.observe(ref), "both should see the same")
    expect(other.create(spec, harness.secrets()) == ref, "its create should find it")


@case
def a_stopped_provider_is_no_verdict(harness: Harness) -> None:
    _, ref = harness.start()
    harness.stop_provider()
    try:
        seen = harness.provider.observe(ref)
    except Unavailable:
        seen = Observation(state=State.UNREACHABLE)
    finally:
        harness.start_provider()
    expect(seen.state is State.UNREACHABLE and not seen.authoritative, f"it should be unreachable, not {seen.state}")
    expect(harness.provider.observe(ref).state is State.READY, "afterwards it should be ready as before")


@case
def lack_of_rights_is_no_verdict(harness: Harness) -> None:
    _, ref = harness.start()
    harness.refuse_access()
    try:
        seen = harness.provider.observe(ref)
    except PermissionDenied:
        return
    expect(seen.state is State.UNREACHABLE and not seen.authoritative, f"it should be unreachable, not {seen.state}")


@case
def throttling_says_when_to_come_back(harness: Harness) -> None:
    _, ref = harness.start()
    harness.throttle()
    try:
        harness.provider.observe(ref)
    except Throttled as throttled:
        expect(throttled.retry_after > 0, "it should say when")
    else:
        expect(False, "observe should have raised Throttled")


@case
def a_killed_instance_is_lost_and_leaves_nothing_running(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.kill_instance(ref)
    is_lost(harness, ref)
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def an_object_deleted_from_outside_is_lost(harness: Harness) -> None:
    _, ref = harness.start()
    harness.delete_object(ref)
    is_lost(harness, ref)


@case
def a_replaced_instance_is_lost_and_its_replacement_never_runs(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.replace_instance(ref)
    is_lost(harness, ref)
    expect(harness.compute(spec.name) == 0, "the replacement should run nothing")


@case
def a_reused_name_is_lost_and_the_successor_is_left_alone(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.reuse_name(ref)
    is_lost(harness, ref)
    expect(harness.objects(spec.name) == 1, "the successor should stand")


@case
def a_restarted_machine_has_lost_its_sandboxes(harness: Harness) -> None:
    _, ref = harness.start()
    harness.restart_machine(ref)
    is_lost(harness, ref)


@case
def a_failed_exit_is_a_failure_with_its_code(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.exit(ref, 70)
    seen = harness.wait(ref, State.FAILED)
    verdict(seen, State.FAILED)
    expect("70" in seen.cause, "the exit code should be told")
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def an_orderly_exit_is_terminated(harness: Harness) -> None:
    _, ref = harness.start()
    harness.exit(ref, 0)
    verdict(harness.wait(ref, State.TERMINATED), State.TERMINATED)


@case
def a_supervisor_that_comes_back_keeps_instance_and_endpoint(harness: Harness) -> None:
    _, ref = harness.start()
    before = harness.provider.observe(ref)
    harness.disturb_supervisor(ref)
    after = harness.wait(ref, State.READY)
    expect((after.instance, after.endpoint) == (before.instance, before.endpoint), "both should be as before")


@case
def renewing_never_shortens_a_life(harness: Harness) -> None:
    _, ref = harness.start()
    now = datetime.now(UTC)
    late = harness.provider.renew(ref, now + SOON)
    early = harness.provider.renew(ref, now)
    expect(late.until is None or late.until >= now + SOON, "it should be kept as long as asked, or have no end")
    expect(early.until is None or (late.until and early.until >= late.until), "an earlier moment should change nothing")


@case
def renewing_what_has_ended_is_refused_and_revives_nothing(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.kill_instance(ref)
    harness.wait(ref, State.LOST)
    try:
        harness.provider.renew(ref, datetime.now(UTC) + SOON)
    except IdentityMismatch:
        pass
    else:
        expect(False, "renew should have raised IdentityMismatch")
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def a_lost_answer_to_renew_may_be_repeated(harness: Harness) -> None:
    _, ref = harness.start()
    until = datetime.now(UTC) + SOON
    harness.drop_answer("renew", lambda: harness.provider.renew(ref, until))
    harness.provider.renew(ref, until)
    expect(harness.provider.observe(ref).state is State.READY, "it should be ready")
