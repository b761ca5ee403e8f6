"""The local provider where it is more than the contract: files, names, processes, verdicts."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.contract import (
    Authority,
    CapacityGap,
    InvalidSpec,
    Report,
    SandboxRef,
    SpecConflict,
    State,
    Termination,
    Unavailable,
)
from sandbox_providers.local.provider import LocalProvider
from sandbox_providers.registry import ProviderSettings
from sandbox_supervisor.protocol import folder
from tests.sandbox_folder import make_image, until

pytestmark = pytest.mark.slow  # a launcher, supervisor and runner per test


@pytest.fixture
def harness():
    made = LocalHarness(image=make_image, isolation="none")
    yield made
    made.close()


@pytest.fixture
def provider(harness):
    return harness.provider


def by_name(name: str) -> SandboxRef:
    """Refer to a sandbox whose create was never answered."""
    return SandboxRef(provider="local", version="1", name=name, uid="")


def leave(spec) -> Authority:
    return Authority(task=spec.task_id, reason="person_deleted")


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", "-x", ".names", "x" * 64, "a\n", "ä"])
def test_names_that_could_leave_the_folder_are_refused(harness, provider, name):
    with pytest.raises(InvalidSpec):
        provider.create(replace(harness.spec(), name=name), harness.secrets())
    with pytest.raises(InvalidSpec):
        provider.observe(by_name(name))


@pytest.mark.parametrize("field", ["key", "task_id"])
def test_an_order_without_key_or_task_is_refused(harness, provider, field):
    with pytest.raises(InvalidSpec):
        provider.create(replace(harness.spec(), **{field: ""}), harness.secrets())


def test_a_runtime_class_is_refused(harness, provider):
    with pytest.raises(InvalidSpec):
        provider.create(replace(harness.spec(), runtime_class="gvisor"), harness.secrets())


def test_the_same_specification_with_another_image_conflicts(harness, provider):
    spec, _ = harness.start()
    with pytest.raises(SpecConflict):
        provider.create(replace(spec, image_digest=harness.bad_image()), harness.secrets())


def test_a_link_in_the_place_of_a_sandbox_is_not_followed_on_removal(harness, provider, tmp_path):
    (tmp_path / "precious").write_text("keep")
    harness.layout.make()
    harness.layout.place("cs-link").symlink_to(tmp_path)
    report = provider.clean_up(by_name("cs-link"), Authority(task="tsk_x", reason="person_deleted"))
    assert (tmp_path / "precious").read_text() == "keep"
    assert report.remaining


# --- half-made -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_half_made_sandbox_is_pending_and_never_lost(harness, provider, step):
    spec = harness.spec()
    assert harness.create_and_die(spec, step)
    assert provider.observe(by_name(spec.name)).state in {State.PENDING, State.ABSENT}


def test_a_half_made_sandbox_is_completed_with_its_first_identity(harness, provider):
    spec = harness.spec()
    harness.create_and_die(spec, 2)
    (half,) = provider.list_owned()
    assert provider.create(spec, harness.secrets()).uid == half.uid


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_half_made_sandbox_can_be_removed_by_name(harness, provider, step):
    spec = harness.spec()
    harness.create_and_die(spec, step)
    until(lambda: provider.terminate(by_name(spec.name), reason="deleted") in {Termination.CONFIRMED, Termination.GONE})
    until(lambda: not provider.clean_up(by_name(spec.name), leave(spec)).remaining, what="removal")
    assert harness.objects(spec.name) == 0
    with pytest.raises(SpecConflict):
        provider.create(spec, harness.secrets())


def test_terminate_right_after_a_killed_creator_catches_the_launcher_on_its_way(harness, provider):
    spec = harness.spec()
    harness.create_and_die(spec, 4)  # the launcher has just been spawned
    assert provider.terminate(by_name(spec.name), reason="deleted") is Termination.CONFIRMED
    assert harness.compute(spec.name) == 0
    assert provider.observe(by_name(spec.name)).state is State.TERMINATED


def test_creators_and_a_terminator_at_once_end_terminated(harness, provider):
    spec = harness.spec()
    harness.create_and_die(spec, 3)
    with ThreadPoolExecutor(4) as pool:
        makers = [pool.submit(harness.again().create, spec, harness.secrets()) for _ in range(3)]
        ender = pool.submit(harness.again().terminate, by_name(spec.name), reason="deleted")
        ender.result()
        for maker in makers:
            maker.result()
    until(lambda: provider.terminate(by_name(spec.name), reason="deleted") is Termination.CONFIRMED)
    assert harness.compute(spec.name) == 0


def test_a_damaged_memory_of_a_removed_sandbox_still_keeps_its_name_from_being_used(harness, provider):
    spec = harness.spec()
    provider.clean_up(by_name(spec.name), leave(spec))
    (harness.layout.names / spec.name).write_bytes(b'{"key": "ts\0\0')
    assert provider.observe(by_name(spec.name)).state is State.ABSENT
    with pytest.raises(SpecConflict):
        provider.create(spec, harness.secrets())


# --- seeing ----------------------------------------------------------------------------------------------------------


def test_a_state_directory_that_is_gone_is_no_verdict(harness, tmp_path):
    _, ref = harness.start()
    elsewhere = LocalProvider(ProviderSettings(state_dir=tmp_path / "unmounted", image_digest=harness.image_digest))
    with pytest.raises(Unavailable):
        elsewhere.observe(ref)
    with pytest.raises(Unavailable):
        list(elsewhere.list_owned())


def test_an_empty_state_directory_is_no_verdict(harness, tmp_path):
    _, ref = harness.start()
    empty = LocalProvider(ProviderSettings(state_dir=tmp_path, image_digest=harness.image_digest))
    with pytest.raises(Unavailable) as caught:
        empty.observe(ref)
    assert caught.value.code == "state_unknown"


@pytest.mark.parametrize("name", [folder.ORDER, folder.RECORD, folder.STATUS])
@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"{}", b"[]", b'{"pid": "x"}'])
def test_damaged_files_are_no_verdict(harness, provider, name, content):
    spec, ref = harness.start()
    path = harness.layout.place(spec.name) / name
    sound = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(Unavailable):
        provider.observe(ref)
    assert list(provider.list_owned()) == []
    path.write_bytes(sound)
    assert provider.observe(ref).state is State.READY


def test_one_damaged_sandbox_hides_no_other(harness, provider):
    broken, _ = harness.start()
    _, sound = harness.start()
    path = harness.layout.place(broken.name) / folder.ORDER
    content = path.read_bytes()
    path.write_bytes(b"damaged")
    assert list(provider.list_owned()) == [sound]
    path.write_bytes(content)


def test_a_reused_pid_is_not_the_launcher(harness, provider):
    spec, ref = harness.start()
    record = harness._record(spec.name)
    harness._kill_all(spec.name)
    path = harness.layout.place(spec.name) / folder.RECORD
    stolen = json.loads(path.read_bytes()) | {"pid": os.getpid()}  # the pid now belongs to this very process
    path.write_bytes(json.dumps(stolen).encode())
    assert record.start_time != 0
    seen = provider.observe(replace(ref, instance=""))
    assert seen.state is State.LOST
    assert provider.terminate(replace(ref, instance=""), reason="test") is Termination.CONFIRMED  # and we still run


def test_a_stopped_launcher_is_not_lost(harness, provider):
    spec, ref = harness.start()
    launcher = harness._record(spec.name).launcher
    launcher.signal(signal.SIGSTOP)
    assert provider.observe(ref).state is State.READY
    launcher.signal(signal.SIGCONT)


def test_no_verdict_is_given_while_the_guard_still_ends_things(harness, provider):
    spec, ref = harness.start()
    record = harness._record(spec.name)
    record.guard.signal(signal.SIGSTOP)
    record.launcher.signal(signal.SIGKILL)
    until(lambda: not record.launcher.alive(), what="the launcher's end")
    seen = provider.observe(ref)
    assert (seen.state, seen.authoritative) == (State.UNREADY, False)
    record.guard.signal(signal.SIGCONT)
    assert harness.wait(ref, State.LOST).authoritative


def test_a_failed_sandbox_is_still_failed_after_a_reboot(harness):
    spec = harness.spec(specification=harness.failing_specification())
    ref = harness.provider.create(spec, harness.secrets())
    harness.wait(ref, State.FAILED)
    harness.restart_machine(ref)
    assert harness.provider.observe(replace(ref, instance="")).reason == "materialisation_failed"


def test_a_machine_that_was_shut_down_in_order_has_lost_its_sandboxes_too(harness):
    _, ref = harness.start()
    harness.exit(ref, 0)
    harness.wait(ref, State.TERMINATED)
    harness.restart_machine(ref)
    seen = harness.provider.observe(replace(ref, instance=""))
    assert (seen.state, seen.cause) == (State.LOST, "rebooted")


# --- ending ----------------------------------------------------------------------------------------------------------


def test_a_wrong_signal_reason_is_kept_as_evidence(harness, provider):
    _, ref = harness.start()
    provider.terminate(ref, reason="credential_revoked")
    assert provider.observe(ref).cause == "credential_revoked"


def test_terminating_with_launcher_and_guard_killed_ends_what_is_marked(harness, provider):
    spec, ref = harness.start()
    record = harness._record(spec.name)
    marked = {folder.MARK: ref.uid, "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env=marked, start_new_session=True) as stray:
        record.guard.signal(signal.SIGKILL)
        record.launcher.signal(signal.SIGKILL)
        assert provider.terminate(ref, reason="test") is Termination.CONFIRMED
        assert stray.wait(60) == -signal.SIGKILL


def test_a_process_with_another_mark_is_left_alone(harness, provider):
    _, ref = harness.start()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env={folder.MARK: "another"}) as stranger:
        provider.terminate(ref, reason="test")
        assert stranger.poll() is None
        stranger.kill()


def test_ending_goes_on_where_an_impatient_caller_stopped(harness):
    spec, ref = harness.start()
    harness.hang(ref)
    impatient = LocalProvider(harness._settings, patience=0.0)
    until(lambda: impatient.terminate(ref, reason="test") is Termination.CONFIRMED, what="the end")
    assert harness.compute(spec.name) == 0


def test_clean_up_goes_on_where_a_killed_one_stopped(harness, provider):
    spec, ref = harness.start()
    provider.terminate(ref, reason="test")
    harness.layout.place(spec.name).rename(harness.layout.removing / spec.name)  # as far as it had come
    assert provider.clean_up(ref, leave(spec)) == Report(removed=(f"folder {spec.name}",))
    assert harness.objects(spec.name) == 0


def test_clean_up_follows_no_link_out_of_the_sandbox(harness, provider, tmp_path):
    spec, ref = harness.start()
    (tmp_path / "precious").write_text("keep")
    (harness.layout.place(spec.name) / "work" / "out").symlink_to(tmp_path)
    provider.terminate(ref, reason="test")
    assert provider.clean_up(ref, leave(spec)).remaining == ()
    assert (tmp_path / "precious").exists()


def test_clean_up_by_name_needs_leave_for_the_task_that_ordered_it(harness, provider):
    spec, _ = harness.start()
    provider.terminate(by_name(spec.name), reason="test")
    with pytest.raises(Exception, match="not for the task"):
        provider.clean_up(by_name(spec.name), Authority(task="tsk_other", reason="person_deleted"))


def test_isolation_that_was_demanded_and_is_missing_is_a_capacity_gap(harness):
    bwrap = harness.layout.image(harness.image_digest) / "bin" / "bwrap"
    bwrap.unlink(missing_ok=True)
    bwrap.parent.mkdir(exist_ok=True)
    bwrap.symlink_to("/bin/false")
    demanding = LocalProvider(replace(harness._settings, isolation="bubblewrap"))
    spec = harness.spec()
    with pytest.raises(CapacityGap) as caught:
        demanding.create(spec, harness.secrets())
    assert caught.value.code == "isolation_missing"
    assert harness.objects(spec.name) == 0


def test_the_tier_is_decided_once_per_sandbox(harness, provider):
    spec, ref = harness.start()
    other = LocalProvider(replace(harness._settings, isolation="auto"))
    other.create(spec, harness.secrets())
    assert other.observe(ref).evidence["tier"] == "none"


def test_capabilities_say_what_stands_between(harness, provider):
    found = provider.capabilities()
    assert (found.name, found.isolation, found.image_digest) == ("local", "no isolation", harness.image_digest)
    assert found.max_lifetime is None
