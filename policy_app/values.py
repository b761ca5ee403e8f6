"""What a policy revision says: typed values, their meaning and their limits. Pure."""

import re
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal

from policy_app.states import PermissionPolicy

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValues:
    """Every typed column of a revision. Sizes are bytes, CPU is cores; blank text means that the thing is left out."""

    provider: str = "local"
    template_reference: str = ""
    runtime_class: str = ""
    runner_image: str = ""  # by digest
    cpu_request: Decimal = Decimal("0.500")
    cpu_limit: Decimal = Decimal("2.000")
    memory_request: int = 512 * MIB
    memory_limit: int = 4 * GIB
    ephemeral_storage_limit: int = 10 * GIB
    workspace_size: int = 10 * GIB
    max_retention: timedelta = timedelta(days=3)
    connection_grace: timedelta = timedelta(minutes=5)
    start_deadline: timedelta = timedelta(minutes=10)
    max_parallel_attempts: int = 4
    artefact_quota: int = 512 * MIB
    rerun_patience: timedelta = timedelta(hours=1)
    archive_patience: timedelta = timedelta(hours=2)
    storage_class: str = ""
    egress_allow: tuple[str, ...] = ()
    park_interval: timedelta = timedelta(minutes=10)
    archive_sessions: bool = False
    permission_policy: PermissionPolicy = PermissionPolicy.FLOW
    live_task_quota: int = 20
    disruption_budget: bool = False


NAMES = tuple(field.name for field in fields(PolicyValues))


@dataclass(frozen=True, slots=True)
class Difference:
    """One column that two revisions disagree about."""

    name: str
    before: object
    after: object


def differences(before: PolicyValues, after: PolicyValues) -> tuple[Difference, ...]:
    """Name every column that differs, in column order."""
    return tuple(
        Difference(name, getattr(before, name), getattr(after, name))
        for name in NAMES
        if getattr(before, name) != getattr(after, name)
    )


def contradictions(values: PolicyValues) -> dict[str, str]:
    """Say what in the values cannot be, by column; empty when they hold together."""
    found = {**_wrong_amounts(values), **_wrong_texts(values)}
    if values.cpu_request > values.cpu_limit:
        found["cpu_request"] = "must not exceed the limit"
    if values.memory_request > values.memory_limit:
        found["memory_request"] = "must not exceed the limit"
    if values.connection_grace < MIN_GRACE:
        found["connection_grace"] = f"must be at least {MIN_GRACE.seconds} s: three heartbeats and a probe"
    return found


def _wrong_amounts(values: PolicyValues) -> dict[str, str]:
    found = {name: f"must be at most {most}" for name, most in _MOST.items() if getattr(values, name) > most}
    for name in _POSITIVE:
        if getattr(values, name) <= type(getattr(values, name))(0):
            found[name] = "must be more than nothing"
    return found


def _wrong_texts(values: PolicyValues) -> dict[str, str]:
    found = {name: "must be one word" for name in _ONE_WORD if not _WORD.fullmatch(getattr(values, name))}
    if values.runner_image and not _IMAGE.fullmatch(values.runner_image):
        found["runner_image"] = "must be sha256: and 64 hexadecimal digits, after the image's name and @ if it has one"
    if not all(_HOST.fullmatch(host) for host in values.egress_allow):
        found["egress_allow"] = "holds host names, not addresses with a scheme or a path"
    return found


MIN_GRACE = timedelta(seconds=60)
_MOST = {"max_parallel_attempts": 10_000, "live_task_quota": 1_000_000}
_ONE_WORD = ("provider", "template_reference", "runtime_class", "storage_class")
_WORD = re.compile(r"[!-~]*")
_IMAGE = re.compile(r"(?:[!-~]+@)?sha256:[0-9a-f]{64}")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_POSITIVE = (
    "cpu_request",
    "memory_request",
    "ephemeral_storage_limit",
    "workspace_size",
    "max_retention",
    "start_deadline",
    "max_parallel_attempts",
    "artefact_quota",
    "rerun_patience",
    "archive_patience",
    "park_interval",
    "live_task_quota",
)
