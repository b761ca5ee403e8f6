"""Publish revisions of the runtime policy. There is no other way to change it."""

from dataclasses import replace
from datetime import datetime

from django.conf import settings
from django.db import transaction

from policy_app.models import PolicyRevision, RuntimePolicy
from policy_app.values import NAMES, PolicyValues, contradictions, differences
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.errors import Conflict, Refused, Unavailable
from workspaces_app.services import audit
from workspaces_app.states import Verb


def current_revision() -> PolicyRevision:
    """Give the revision that tasks created now freeze: a pointer to an immutable row, read without a lock.

    Raises Unavailable before the first revision is seeded.
    """
    policy = RuntimePolicy.objects.select_related("current").filter(pk=1).first()
    if policy is None:
        raise Unavailable("There is no runtime policy yet; `./caisson up` makes the first one.", code="policy_missing")
    return policy.current


def publish_revision(
    *, based_on: int, message: str, author: Actor, values: PolicyValues, now: datetime
) -> PolicyRevision:
    """Make ``values`` the policy of later tasks; tasks that exist keep what they froze.

    ``based_on`` is the number of the revision that the author looked at: when another one was published since, nothing
    is changed and Conflict says which. Raises Refused for no message, values that contradict each other, no change.
    """
    authorise(author, Permission.PUBLISH_POLICY)
    if not message.strip():
        raise Refused("Say in a message why the policy changes.", code="policy_message_missing")
    wrong = problems(values)
    if wrong:
        raise Refused("The values contradict each other: " + _sentence(wrong), code="policy_invalid", errors=wrong)
    with transaction.atomic():
        before = _locked_current()
        if before.number != based_on:
            raise Conflict(
                f"Revision {before.number} was published since you looked at revision {based_on}: “{before.message}”.",
                code="policy_moved",
                based_on=based_on,
                current=before.number,
            )
        if not differences(before.values, values):
            raise Refused(f"Nothing differs from revision {before.number}.", code="policy_unchanged")
        return _append(before, values, message=message.strip(), author=author, now=now)


def roll_back(*, to: int, based_on: int, message: str, author: Actor, now: datetime) -> PolicyRevision:
    """Publish a copy of an earlier revision. Raises Refused when there is none, else as ``publish_revision``."""
    authorise(author, Permission.PUBLISH_POLICY)
    earlier = PolicyRevision.objects.filter(number=to).first()
    if earlier is None:
        raise Refused(f"There is no revision {to}.", code="policy_revision_missing")
    return publish_revision(based_on=based_on, message=message, author=author, values=earlier.values, now=now)


def problems(values: PolicyValues) -> dict[str, str]:
    """Say by column what is wrong with the values in this deployment; empty when they may be published."""
    found = contradictions(values)
    if values.provider not in settings.PROVIDERS:
        found["provider"] = f"is not installed; installed: {', '.join(settings.PROVIDERS)}"
    return found


def seed_revision(values: PolicyValues, *, now: datetime) -> PolicyRevision:
    """Publish revision 1 on an empty database; later calls give the current revision. Safe to race."""
    with transaction.atomic():
        first = PolicyRevision.objects.filter(number=1).first()
        if first is None:
            first, _ = PolicyRevision.objects.get_or_create(
                number=1,
                defaults={"message": "First revision, from the settings", "published_at": now, **_columns(values)},
            )
        policy, _ = RuntimePolicy.objects.get_or_create(pk=1, defaults={"current": first})
    return policy.current


def adopt_runner_image(digest: str, *, now: datetime) -> PolicyRevision:
    """Let later tasks run in the image that this deployment has just built; unchanged when they already do."""
    with transaction.atomic():
        before = _locked_current()
        if before.runner_image == digest:
            return before
        values = replace(before.values, runner_image=digest)
        return _append(before, values, message="The runner image was built anew", author=audit.SYSTEM, now=now)


def _locked_current() -> PolicyRevision:
    """Lock the pointer, so that two publications cannot both rest on the same revision."""
    return RuntimePolicy.objects.select_for_update().get(pk=1).current


def _append(
    before: PolicyRevision, values: PolicyValues, *, message: str, author: Actor, now: datetime
) -> PolicyRevision:
    """Insert the next revision, point at it and leave the trace. The caller holds the lock."""
    revision = PolicyRevision.objects.create(
        number=before.number + 1,
        parent=before,
        message=message,
        author_id=author.user_id,
        published_at=now,
        **_columns(values),
    )
    RuntimePolicy.objects.filter(pk=1).update(current=revision)
    changed = differences(before.values, values)
    audit.record(
        author,
        Verb.POLICY_PUBLISHED,
        kind="policy_revision",
        object_id=str(revision.number),
        before={change.name: str(change.before) for change in changed},
        after={change.name: str(change.after) for change in changed},
    )
    return revision


def _columns(values: PolicyValues) -> dict[str, object]:
    columns = {name: getattr(values, name) for name in NAMES}
    columns["egress_allow"] = list(values.egress_allow)
    return columns


def _sentence(wrong: dict[str, str]) -> str:
    return "; ".join(f"{name.replace('_', ' ')} {text}" for name, text in wrong.items()) + "."
