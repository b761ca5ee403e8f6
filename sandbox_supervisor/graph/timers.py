"""What the end of a wait means."""

from sandbox_supervisor.graph import approvals
from sandbox_supervisor.graph.clocks import is_due
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.facts import TimerFired
from sandbox_supervisor.graph.moves import stop_attempt


def fired(d: Draft, fact: TimerFired) -> None:
    """Act on a timer that is due. One that is gone, or was started anew meanwhile, means nothing."""
    timer = d.state.timers.get(fact.timer)
    if timer is None or not is_due(timer, d.now.instant):
        return
    d.clear_timer(timer.what, timer.subject)
    match timer.what:
        case "attempt":
            stop_attempt(d, timer.subject, "timeout")
        case "node":
            active = d.node(timer.subject).active
            if active is not None:
                stop_attempt(d, active, "node_timeout")
        case "approval":
            approvals.expired(d, timer.subject)
        case _:
            pass  # a back-off: the node may be dispatched from now on
