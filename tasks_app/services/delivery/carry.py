"""Carry a queued delivery to its remote. Safe to repeat, to race and to be killed at any instruction."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import structlog

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app import git, queue
from tasks_app.errors import SafeMode
from tasks_app.models import Delivery
from tasks_app.remotes import RemoteProblem, open_remote
from tasks_app.services import clock, deployment, uploads
from tasks_app.services.delivery import bundle, forge, mirror, outcome
from tasks_app.services.delivery import push as pushing
from tasks_app.services.delivery.held_lease import HeldLease, LeaseLost, held
from tasks_app.states import Status

log = structlog.get_logger(__name__)


def sweep() -> None:
    """Send every delivery that is due to a worker again: the queue may have forgotten it."""
    for pk in Delivery.objects.due(clock.database_now()).values_list("pk", flat=True)[:200]:
        queue.deliver(pk)


def deliver(delivery_id: str) -> None:
    """Push a delivery, read it back, open its change request and write down how it ended.

    Nothing happens while another worker holds the mirror's lease, or when the delivery is not queued or not yet due.
    """
    delivery = Delivery.objects.due(clock.database_now()).filter(pk=delivery_id).select_related("task").first()
    if delivery is None:
        return
    with held(mirror.lease_name(delivery.task.clone_url)) as lease:
        if lease is None:
            return
        delivery.refresh_from_db()
        if delivery.state == DeliveryState.QUEUED:
            _try_or_hold(delivery, lease)


def _try_or_hold(delivery: Delivery, lease: HeldLease) -> None:
    try:
        deployment.require_sound()
        if _begin_try(delivery):
            _settle_or_put_off(delivery, lease)
    except SafeMode as held:
        outcome.hold(delivery, held)


def _settle_or_put_off(delivery: Delivery, lease: HeldLease) -> None:
    try:
        _carry(delivery, lease)
    except bundle.BundleRefused as refused:
        outcome.settle(delivery, DeliveryState.REFUSED, code=refused.code, message=refused.message)
    except uploads.DigestMismatch as lost:
        outcome.settle(delivery, DeliveryState.FAILED, code="bundle_lost", message=lost.message)
    except pushing.PushConflict as conflict:
        facts = delivery.facts | conflict.facts
        outcome.settle(delivery, DeliveryState.CONFLICT, code="remote_moved", message=conflict.message, facts=facts)
    except pushing.PushRefused as refused:
        outcome.settle(delivery, DeliveryState.FAILED, code=refused.code, message=refused.message)
    except RemoteProblem as problem:
        if problem.transient:
            outcome.put_off(delivery, code=problem.code, message=problem.message)
        else:
            outcome.settle(delivery, DeliveryState.FAILED, code=problem.code, message=problem.message)
    except LeaseLost:
        log.info("delivery_lease_lost", delivery=delivery.pk)
    except (git.GitFailed, OSError) as trouble:
        log.warning("delivery_trouble", delivery=delivery.pk, error=str(trouble))
        outcome.put_off(delivery, code="delivery_trouble", message="The control plane could not work on it.")


def _begin_try(delivery: Delivery) -> bool:
    """Commit the intent: what the branch must hold is settled before the first push and never again."""
    if delivery.task.status != Status.RUNNING:
        outcome.settle(
            delivery, DeliveryState.REFUSED, code="task_ended", message="The task ended before it was delivered."
        )
        return False
    if delivery.attempts >= outcome.TRIES:
        outcome.put_off(delivery, code=delivery.code or "delivery_trouble", message=delivery.message)
        return False
    expected = _last_delivered(delivery) if delivery.attempts == 0 else delivery.expected_old
    delivery.attempts += 1
    delivery.expected_old = expected
    return bool(
        Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.QUEUED).update(
            attempts=delivery.attempts, expected_old=expected
        )
    )


def _last_delivered(delivery: Delivery) -> str:
    """Give the commit that this task last put on its branch; empty: the branch must not exist."""
    earlier = Delivery.objects.filter(task_id=delivery.task_id, state=DeliveryState.DELIVERED, branch=delivery.branch)
    last = earlier.order_by("-settled_at", "-pk").first()
    return last.commit if last else ""


def _perhaps_delivered(delivery: Delivery) -> frozenset[str]:
    """Give the commits of earlier deliveries that were tried and never seen to arrive: an answer may have been lost."""
    earlier = Delivery.objects.filter(task_id=delivery.task_id, branch=delivery.branch, pk__lt=delivery.pk)
    tried = earlier.filter(attempts__gt=0).exclude(state=DeliveryState.DELIVERED)
    return frozenset(tried.values_list("commit", flat=True))


def _carry(delivery: Delivery, lease: HeldLease) -> None:
    task = delivery.task
    workspace = task.workspace
    with _bundle(delivery) as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        _check_header(delivery, bundle.read_header(path))
        source = open_remote(task.clone_url, workspace=workspace)
        copy = mirror.prepare(source, commit=task.base_commit, ref=task.base_ref)
        with bundle.unpacked(path, copy) as objects:
            bundle.check_descent(copy, objects, base=task.base_commit, commit=delivery.commit)
            target = open_remote(task.push_url, workspace=workspace)
            push = pushing.Push(
                branch=delivery.branch,
                commit=delivery.commit,
                expected=delivery.expected_old,
                ours=_perhaps_delivered(delivery),
            )
            lease.confirm()
            deployment.require_sound()
            pushing.carry_out(push, target, mirror=copy, objects=objects)
            patch = forge.keep_patch(delivery, mirror=copy, objects=objects)
    outcome.settle(
        delivery,
        DeliveryState.DELIVERED,
        code="",
        message="",
        facts=delivery.facts | {"patch": patch},
        change_request=forge.describe(delivery, patch) if delivery.wants_change_request else None,
    )


def _bundle(delivery: Delivery) -> AbstractContextManager[IO[bytes]]:
    return uploads.whole(uploads.folder(delivery.pk), size=delivery.bundle_size, digest=delivery.bundle_digest)


def _check_header(delivery: Delivery, header: bundle.Header) -> None:
    if header.ref != f"refs/heads/{delivery.branch}":
        raise bundle.BundleRefused("bundle_refs", "The bundle names another ref than the frozen task branch.")
    if header.tip != delivery.commit:
        raise bundle.BundleRefused("bundle_commit", "The bundle brings another commit than the one announced.")
