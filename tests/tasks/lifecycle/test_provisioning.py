"""From a pending row to a running sandbox, whatever the provider does meanwhile."""

from dataclasses import replace

import pytest

from registry_app.models import DriverVersion, FlowVersion
from registry_app.services.drivers import store_driver
from registry_app.services.flows import compiled_or_refused, store_flow
from registry_app.services.seed import SCRIPTED
from sandbox_providers.contract import State
from sandbox_providers.scripted import Fault
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import Desired
from sandbox_supervisor.protocol.spec import TaskSpecification
from tasks_app.models import Quota
from tasks_app.services import contact, leases, lifecycle, observation, providers, provisioning, tokens
from tasks_app.services.providers import provider_named
from tasks_app.states import FailureCode, Presence, SecretState, Status
from tests.tasks.lifecycle.house import FLOW
from workspaces_app.services.audit import SYSTEM


def creates(house) -> int:
    return sum(done.verb == "create" and done.effect for done in house.world.history)


def test_a_new_task_gets_one_sandbox_with_its_specification_and_secret(house):
    task = house.starting()
    box = house.box(task)
    assert (task.status, task.presence, task.secret) == (Status.PROVISIONING, Presence.PRESENT, SecretState.PRESENT)
    assert box.spec.specification == bytes(task.specification)
    assert codec.decode(box.spec.specification, TaskSpecification).task.id == task.pk
    assert box.secrets["supervisor"]["task_token"].reveal() == tokens.task_token(task)
    assert box.secrets["supervisor"]["dial_token"].reveal() == tokens.dial_token(task)
    assert set(box.secrets) == {"supervisor", "materialise"}


def test_provisioning_twice_makes_one_sandbox(house):
    task = house.starting()
    provisioning.provision(task.pk)
    provisioning.sweep()
    assert creates(house) == 1


def test_a_second_worker_gives_way_to_the_lease(house):
    task = house.pending()
    token = leases.take(f"provision:{task.pk}", now=house.clock(), ttl=provisioning.LEASE)
    assert provisioning.provision(task.pk).status == Status.PENDING
    assert token
    leases.release(f"provision:{task.pk}", token)
    assert provisioning.provision(task.pk).presence == Presence.PRESENT


def test_a_dead_workers_lease_runs_out(house):
    task = house.pending()
    leases.take(f"provision:{task.pk}", now=house.clock(), ttl=provisioning.LEASE)
    house.clock.advance(seconds=61)
    assert provisioning.provision(task.pk).presence == Presence.PRESENT


@pytest.mark.parametrize("fault", [Fault.LOST_RESPONSE, Fault.LOST_REQUEST, Fault.THROTTLED, Fault.DENIED])
def test_a_create_without_an_answer_is_tried_again_and_makes_one_sandbox(house, fault):
    house.world.plan("create", fault)
    task = house.starting()
    assert (task.status, task.presence) == (Status.PROVISIONING, Presence.CREATING)
    assert task.trouble
    house.clock.advance(seconds=6)
    provisioning.sweep()
    assert house.again(task).presence == Presence.PRESENT
    assert len(house.world.boxes) == 1


def test_a_failed_try_is_not_repeated_at_once(house):
    house.world.plan("create", Fault.LOST_REQUEST)
    task = house.starting()
    provisioning.sweep()
    assert house.again(task).presence == Presence.CREATING


def test_a_lack_of_room_is_waited_for_and_named_when_the_time_is_over(house):
    house.world.plan("create", *[Fault.NO_CAPACITY] * 200)
    task = house.starting()
    house.sweep_contact(seconds=task.start_deadline.total_seconds() + 10)
    task = house.again(task)
    assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.CAPACITY)


def test_a_specification_that_can_never_be_created_fails_at_once(house, world):
    task = house.pending()
    world.gone[task.sandbox_name] = "uid-0"
    task = provisioning.provision(task.pk)
    assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.INVALID_SPEC)


def test_a_crash_between_the_intent_and_the_call_is_carried_on(house):
    task = house.pending()
    lifecycle.claim(task, now=house.clock())
    assert not house.world.boxes
    provisioning.sweep()
    assert house.again(task).presence == Presence.PRESENT


def test_a_crash_between_the_call_and_its_record_adopts_what_is_there(house):
    task = house.pending()
    lifecycle.claim(task, now=house.clock())
    task = house.again(task)
    reference = provider_named("scripted").create(provisioning.sandbox_spec(task), provisioning.secret_bundle(task))
    provisioning.sweep()
    task = house.again(task)
    assert task.sandbox_ref == reference
    assert len(house.world.boxes) == 1


def test_the_first_heartbeat_at_readiness_is_answered_with_run(house):
    task = house.starting()
    assert task.endpoint is None
    answer = house.beat(task)
    task = house.again(task)
    assert (answer.status, answer.desired, answer.round) == ("running", Desired.RUN, 1)
    assert task.endpoint["port"] == house.world.endpoint.port
    assert task.running_at == house.clock()


def test_a_heartbeat_before_the_sandbox_is_bound_is_held_and_takes_nothing(house):
    task = house.pending()
    lifecycle.claim(task, now=house.clock())
    answer = house.beat(task)
    assert (answer.desired, answer.interval) == (Desired.HOLD, contact.EAGER)
    assert house.again(task).contact.epoch == ""


def test_a_supervisor_that_is_not_ready_is_held(house):
    task = house.starting()
    answer = house.beat(task, ready=False, readiness={"runner": "not connected"})
    task = house.again(task)
    assert (answer.desired, task.status) == (Desired.HOLD, Status.PROVISIONING)
    assert task.contact.readiness == {"runner": "not connected"}


def test_the_secret_is_withdrawn_once_the_task_runs(house):
    task = house.running()
    assert house.box(task).secrets is not None
    task = provisioning.withdraw_secret(task.pk)
    assert house.box(task).secrets is None
    assert (task.secret, task.secret_withdrawn_at) == (SecretState.WITHDRAWN, house.clock())


def test_a_secret_is_not_withdrawn_before_it_has_served(house):
    task = house.starting()
    provisioning.withdraw_secret(task.pk)
    assert house.box(task).secrets is not None


def test_a_withdrawal_without_an_answer_is_tried_again_by_the_sweep(house):
    task = house.running()
    house.world.plan("withdraw_secret", Fault.LOST_REQUEST)
    assert provisioning.withdraw_secret(task.pk).secret == SecretState.PRESENT
    provisioning.sweep_secrets()
    assert house.again(task).secret == SecretState.WITHDRAWN
    assert house.box(task).secrets is None


def test_a_task_that_failed_before_it_ran_has_its_secret_withdrawn_too(house):
    task = house.starting()
    house.world.change(task.sandbox_name, State.FAILED, reason="materialisation_failed", cause="clone failed")
    observation.observe(task.pk)
    provisioning.sweep_secrets()
    task = house.again(task)
    assert (task.failure_code, task.secret) == (FailureCode.MATERIALISATION_FAILED, SecretState.WITHDRAWN)


def test_a_start_that_takes_too_long_fails_and_keeps_the_sandbox(house):
    task = house.starting()
    house.sweep_contact(seconds=task.start_deadline.total_seconds() + 10)
    task = house.again(task)
    assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.START_DEADLINE)
    assert task.presence == Presence.PRESENT
    assert house.box(task).running


def test_cancelling_while_the_create_is_under_way_leaves_no_secret(house):
    house.world.plan("create", Fault.LOST_RESPONSE)
    task = house.starting()
    task = lifecycle.request_cancel(task.pk, actor="user:ada")
    assert (task.status, task.presence) == (Status.CANCELLED, Presence.CREATING)
    house.clock.advance(seconds=6)
    provisioning.sweep_secrets()
    assert house.again(task).secret == SecretState.PRESENT
    provisioning.sweep()
    provisioning.sweep_secrets()
    task = house.again(task)
    assert (task.presence, task.secret) == (Presence.PRESENT, SecretState.WITHDRAWN)
    assert house.box(task).secrets is None


def test_a_create_that_never_had_an_effect_is_given_up_after_the_end(house):
    house.world.plan("create", Fault.LOST_REQUEST)
    task = house.starting()
    lifecycle.request_cancel(task.pk, actor="user:ada")
    provisioning.sweep()
    assert house.again(task).presence == Presence.CREATING
    house.clock.advance(seconds=61)
    provisioning.sweep()
    task = house.again(task)
    assert (task.presence, task.quota_held) == (Presence.LOST, False)
    assert not house.world.boxes


def test_a_last_try_that_may_still_have_an_effect_is_waited_for_however_old_the_task_is(house):
    house.world.plan("create", Fault.LOST_REQUEST, Fault.LOST_REQUEST)
    task = house.starting()
    house.clock.advance(seconds=100)
    provisioning.sweep()
    lifecycle.request_cancel(task.pk, actor="user:ada")
    provisioning.sweep()
    task = house.again(task)
    assert (task.presence, task.quota_held) == (Presence.CREATING, True)
    provider_named("scripted").create(provisioning.sandbox_spec(task), provisioning.secret_bundle(task))
    provisioning.sweep()
    provisioning.sweep_secrets()
    task = house.again(task)
    assert (task.presence, task.secret) == (Presence.PRESENT, SecretState.WITHDRAWN)


def test_a_worker_that_slept_past_its_lease_creates_nothing(house, monkeypatch):
    task, claim = house.pending(), lifecycle.claim

    def drowsy(*arguments, **named):
        claim(*arguments, **named)
        house.clock.advance(seconds=61)

    with monkeypatch.context() as asleep:
        asleep.setattr(lifecycle, "claim", drowsy)
        assert provisioning.provision(task.pk).presence == Presence.CREATING
    assert not house.world.history
    assert provisioning.provision(task.pk).presence == Presence.PRESENT


class TestCapabilities:
    @pytest.fixture
    def agents(self, house):
        """A task whose agent's driver was pinned."""
        source = FLOW.replace("one-command", "one-agent").replace(
            'command: {run: "true"}', "agent: {driver: scripted, prompt: go, playbook: [{say: hello}]}"
        )
        flow = store_flow(source, compiled_or_refused(source), workspace=None, number=1, by=house.actor)
        return house.pending(flow_version_id=flow.pk)

    def test_a_driver_that_was_withdrawn_before_the_sandbox_fails_the_task_by_name(self, house, agents):
        DriverVersion.objects.update(yanked_at=house.clock(), yanked_because="It leaks.")
        task = provisioning.provision(agents.pk)
        assert (task.status, task.failure_code, task.quota_held) == (Status.FAILED, FailureCode.CAPABILITY_GAP, False)
        assert "scripted@1" in task.failure["message"]
        assert not house.world.history

    def test_a_flow_that_was_withdrawn_before_the_sandbox_fails_the_task_by_name(self, house):
        task = house.pending()
        FlowVersion.objects.filter(pk=house.flow.pk).update(yanked_at=house.clock(), yanked_because="It loops.")
        task = provisioning.provision(task.pk)
        assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.CAPABILITY_GAP)
        assert "It loops." in task.failure["message"]

    def test_a_provider_that_was_taken_out_before_the_sandbox_fails_the_task_by_name(self, house, settings):
        task = house.pending()
        settings.PROVIDERS = ()
        providers._ready.clear()
        task = provisioning.provision(task.pk)
        assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.CAPABILITY_GAP)
        assert "scripted" in task.failure["message"]

    def test_a_newer_driver_changes_nothing_for_a_task_that_waits(self, house, agents):
        store_driver(replace(SCRIPTED, env={"NEWER": "1"}), description="", by=SYSTEM)
        assert provisioning.provision(agents.pk).presence == Presence.PRESENT

    def test_what_is_withdrawn_once_the_creation_has_begun_stops_nothing(self, house, agents):
        house.world.plan("create", Fault.LOST_REQUEST)
        provisioning.provision(agents.pk)
        DriverVersion.objects.update(yanked_at=house.clock())
        house.clock.advance(seconds=6)
        assert provisioning.provision(agents.pk).presence == Presence.PRESENT


def test_a_pending_task_is_cancelled_without_any_sandbox(house):
    task = lifecycle.request_cancel(house.pending().pk, actor="user:ada")
    provisioning.sweep()
    assert (task.status, task.presence) == (Status.CANCELLED, Presence.NONE)
    assert not house.world.boxes
    assert not house.world.history


def test_quota_of_a_task_that_never_had_a_sandbox_is_freed_at_its_end(house):
    lifecycle.request_cancel(house.pending().pk, actor="user:ada")
    assert set(Quota.objects.values_list("used", flat=True)) == {0}


def test_the_sweep_goes_on_after_a_row_that_makes_no_sense(house):
    broken, sound = house.pending(), house.pending(task_branch="other")
    type(broken).objects.filter(pk=broken.pk).update(endpoint={"nonsense": 1})
    provisioning.sweep()
    assert house.again(sound).presence == Presence.PRESENT
    assert "nonsense" in house.again(broken).quarantine


def test_a_provider_that_is_not_installed_any_more_is_no_verdict(house, settings):
    task = house.running()
    settings.PROVIDERS = ()
    providers._ready.clear()
    assert observation.observe(task.pk).status == Status.RUNNING
