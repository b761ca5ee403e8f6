"""Cases: terminate stops and keeps, clean-up removes with leave, and neither ever hits another sandbox."""

from contextlib import suppress
from dataclasses import replace

from sandbox_providers.conformance.cases import case
from sandbox_providers.conformance.harness import Harness, expect, leave, until
from sandbox_providers.contract import (
    IdentityMismatch,
    ProviderError,
    Report,
    SandboxRef,
    SandboxSpec,
    State,
    Termination,
)

STOPPED = frozenset({Termination.CONFIRMED, Termination.GONE})


def terminate(harness: Harness, ref: SandboxRef) -> None:
    """Terminate until it is confirmed, as the control plane does."""
    until(lambda: harness.provider.terminate(ref, reason="test") in STOPPED, "termination should be confirmed")


def clean_up(harness: Harness, spec: SandboxSpec, ref: SandboxRef) -> None:
    until(lambda: not harness.provider.clean_up(ref, leave(spec.task_id)).remaining, "everything should be removed")


@case
def terminate_stops_compute_and_keeps_the_evidence(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    seen = harness.wait(ref, State.TERMINATED)
    expect(seen.authoritative, "it should be a verdict")
    expect(harness.compute(spec.name) == 0, "nothing should run")
    expect(harness.objects(spec.name) == 1, "the sandbox should be kept")


@case
def terminate_may_be_repeated(harness: Harness) -> None:
    _, ref = harness.start()
    terminate(harness, ref)
    expect(harness.again().terminate(ref, reason="again") in STOPPED, "it should still be stopped")


@case
def a_lost_answer_to_terminate_may_be_repeated(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.drop_answer("terminate", lambda: harness.provider.terminate(ref, reason="test"))
    terminate(harness, ref)
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def terminating_what_never_was_is_gone(harness: Harness) -> None:
    ref = SandboxRef(provider=harness.name, version="1", name=harness.spec().name, uid="")
    expect(harness.provider.terminate(ref, reason="test") is Termination.GONE, "it should be gone")


@case
def terminate_never_hits_a_successor(harness: Harness) -> None:
    _, ref = harness.start()
    stranger = replace(ref, uid="another", instance="")
    expect(harness.provider.terminate(stranger, reason="test") is Termination.GONE, "the meant one should be gone")
    expect(harness.provider.observe(ref).state is State.READY, "the one that is there should be untouched")


@case
def terminate_ends_what_does_not_want_to(harness: Harness) -> None:
    spec, ref = harness.start()
    harness.hang(ref)
    terminate(harness, ref)
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def a_terminated_sandbox_cannot_be_resumed(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    expect(harness.provider.create(spec, harness.secrets()).uid == ref.uid, "create should give the same sandbox")
    expect(harness.provider.observe(ref).state is State.TERMINATED, "it should still be terminated")
    expect(harness.compute(spec.name) == 0, "nothing should run")


@case
def clean_up_needs_leave_for_this_very_task(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    try:
        harness.provider.clean_up(ref, leave("tsk_other"))
    except IdentityMismatch:
        pass
    else:
        expect(False, "clean_up should have raised IdentityMismatch")
    expect(harness.objects(spec.name) == 1, "the sandbox should stand")


@case
def clean_up_leaves_what_still_runs(harness: Harness) -> None:
    spec, ref = harness.start()
    report = harness.provider.clean_up(ref, leave(spec.task_id))
    expect(report.remaining, "what runs should be reported as remaining")
    expect(harness.provider.observe(ref).state is State.READY, "it should run on")


@case
def clean_up_removes_everything(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    report = harness.provider.clean_up(ref, leave(spec.task_id))
    expect(report.removed and not report.remaining, f"everything should be removed, not {report}")
    expect(harness.objects(spec.name) == 0, "nothing should exist")
    expect(harness.provider.observe(ref).state is State.ABSENT, "it should be absent, not lost")
    expect(ref not in list(harness.provider.list_owned()), "it should not be listed")


@case
def clean_up_may_be_repeated(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    clean_up(harness, spec, ref)
    expect(harness.again().clean_up(ref, leave(spec.task_id)) == Report(), "there should be nothing more to do")


@case
def a_lost_answer_to_clean_up_may_be_repeated(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    harness.drop_answer("clean_up", lambda: harness.provider.clean_up(ref, leave(spec.task_id)))
    clean_up(harness, spec, ref)
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def what_cannot_be_removed_is_reported_and_removed_later(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    unblock = harness.block_removal(ref)
    try:
        report = harness.provider.clean_up(ref, leave(spec.task_id))
    finally:
        unblock()
    expect(report.remaining, "what remains should be named")
    clean_up(harness, spec, ref)
    expect(harness.objects(spec.name) == 0, "nothing should exist")


@case
def clean_up_never_hits_a_successor(harness: Harness) -> None:
    spec, ref = harness.start()
    terminate(harness, ref)
    harness.provider.clean_up(replace(ref, uid="another", instance=""), leave(spec.task_id))
    expect(harness.objects(spec.name) == 1, "the one that is there should stand")


@case
def a_create_that_comes_after_clean_up_makes_nothing(harness: Harness) -> None:
    spec = harness.spec()
    ref = SandboxRef(provider=harness.name, version="1", name=spec.name, uid="")
    expect(not harness.provider.clean_up(ref, leave(spec.task_id)).remaining, "there should be nothing to remove")
    with suppress(ProviderError):
        harness.provider.create(spec, harness.secrets())
    expect(harness.objects(spec.name) == 0, "a late create should have made nothing")


@case
def sandboxes_nobody_asks_for_are_listed_and_left_alone(harness: Harness) -> None:
    spec, ref = harness.start()
    for _ in range(3):
        expect(ref in list(harness.again().list_owned()), "it should be listed")
    expect(harness.objects(spec.name) == 1, "it should stand")


@case
def foreign_objects_are_neither_listed_nor_touched(harness: Harness) -> None:
    foreign = harness.add_foreign_object()
    harness.start()
    expect(foreign not in {ref.name for ref in harness.provider.list_owned()}, "it should not be listed")
    expect(harness.foreign_object_stands(foreign), "it should stand")
