"""Carry a transition out on the rows: for the engine's picture in memory, and to check the log against itself."""

from typing import Any

from sandbox_supervisor.graph.rows import Change, GraphRow, State

EMPTY = State(graph=GraphRow(), nodes={}, attempts={}, requests={}, timers={}, intents={})


def apply(state: State, change: Change) -> State:
    """Give the state after ``change``. Neither argument is changed."""
    return State(
        graph=change.graph or state.graph,
        nodes=_merged(state.nodes, {row.key: row for row in change.nodes}),
        attempts=_merged(state.attempts, {str(row.id): row for row in change.attempts}),
        requests=_merged(state.requests, {row.id: row for row in change.requests}),
        timers=_merged(state.timers, {row.id: row for row in change.timers_set}, change.timers_cleared),
        intents=_merged(state.intents, {row.id: row for row in change.intents}, change.intents_done),
    )


def _merged(old: dict[str, Any], new: dict[str, Any], gone: tuple[str, ...] = ()) -> dict[str, Any]:
    if not new and not gone:
        return old
    return {key: row for key, row in {**old, **new}.items() if key not in gone}
