"""Consumed time of attempts and nodes, and the timers that watch it.

Waiting for input stops an attempt's clock, not its node's.
"""

from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.facts import Restarted
from sandbox_supervisor.graph.rows import TimerRow
from sandbox_supervisor.protocol.events import EventKind

_RUNNING_TIME = ("attempt", "node")  # timers of clocks that stand still while no supervisor runs


def start(d: Draft, attempt: str) -> None:
    """Let the clocks of an attempt and its node run; clocks that run already are left alone."""
    row = d.attempt(attempt)
    key = row.id.node
    timeout = d.spec(key).timeout
    if row.clock_since is None:
        d.set_attempt(attempt, clock_since=d.now.instant)
        if timeout.attempt is not None:
            d.set_timer("attempt", attempt, max(0.0, timeout.attempt - row.active_seconds))
    node = d.node(key)
    if node.clock_since is None:
        d.set_node(key, clock_since=d.now.instant)
        if timeout.node is not None:
            d.set_timer("node", key, max(0.0, timeout.node - node.node_seconds))


def stop_attempt(d: Draft, attempt: str) -> None:
    """Stop an attempt's clock and keep what it has consumed."""
    row = d.attempt(attempt)
    d.clear_timer("attempt", attempt)
    if row.clock_since is not None:
        consumed = row.active_seconds + _elapsed(row.clock_since, d.now.instant)
        d.set_attempt(attempt, clock_since=None, active_seconds=consumed)


def stop_node(d: Draft, key: str) -> None:
    """Stop a node's clock and keep what it has consumed."""
    row = d.node(key)
    d.clear_timer("node", key)
    if row.clock_since is not None:
        consumed = row.node_seconds + _elapsed(row.clock_since, d.now.instant)
        d.set_node(key, clock_since=None, node_seconds=consumed)


def restarted(d: Draft, fact: Restarted) -> None:
    """Go on after a supervisor's death: what it did not live to see is counted against nobody.

    Waits for a person and back-offs go on through the gap; after a reboot all instants start anew from now.
    """
    d.event(EventKind.SUPERVISOR_STARTED, {**fact.data, "boot": fact.boot})
    if fact.alive_until is None:
        return
    for row in d.live_attempts():
        if row.clock_since is not None:
            lived = _elapsed(row.clock_since, fact.alive_until)
            d.set_attempt(row.id, active_seconds=row.active_seconds + lived, clock_since=d.now.instant)
    for key in d.topology.nodes:
        node = d.node(key)
        if node.clock_since is not None:
            lived = _elapsed(node.clock_since, fact.alive_until)
            d.set_node(key, node_seconds=node.node_seconds + lived, clock_since=d.now.instant)
    for timer in d.state.timers.values():
        if timer.what in _RUNNING_TIME or not fact.same_boot:
            _shift(d, timer, fact.alive_until)


def _shift(d: Draft, timer: TimerRow, alive_until: float) -> None:
    d.set_timer(timer.what, timer.subject, max(0.0, timer.remaining - _elapsed(timer.since, alive_until)))


def _elapsed(since: float, until: float) -> float:
    return max(0.0, until - since)


def is_due(timer: TimerRow, instant: float) -> bool:
    """Say whether a timer's time has come; a waker may be early by the grain of its own clock."""
    return instant >= timer.since + timer.remaining - 0.05
