"""What the log's disk means for the task: a short lack of space is waited out, a long one and damage are failures."""

import time
from dataclasses import replace

from sandbox_supervisor.log import Log
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass

GRACE = 300.0  # seconds for which a disk may be full


def failure_of(log: Log, grace: float) -> Failure | None:
    """Say why the log can no longer carry the task; None while it can."""
    if log.damage:
        what = f"The log of this sandbox is damaged ({log.damage})."
        message = f"{what} Nothing runs any more; what can be read stays readable."
        return Failure(failure_class=FailureClass.INFRA, code="storage_corrupt", message=message)
    since = log.full_since
    if since is None or time.monotonic() - since < grace:
        return None
    message = (
        f"The disk of this sandbox has been full for {grace:g} s, so that nothing can start and no output be kept. "
        "Make room, then rerun what did not finish."
    )
    return Failure(failure_class=FailureClass.INFRA, code="storage_failed", message=message, facts={"grace": grace})


def blamed(log: Log, failure: Failure) -> Failure:
    """Give the failure of an attempt, or the lack of space if there is one: that is no fault of the attempt."""
    return replace(failure, failure_class=FailureClass.INFRA, code="no_space") if log.is_scarce() else failure


def condition(log: Log, grace: float) -> str:
    """Give the readiness of the storage: "ok" or what is wrong."""
    if failure := failure_of(log, grace):
        return f"storage_corrupt: {log.damage}" if log.damage else failure.code
    return "storage_full" if log.full else "ok"
