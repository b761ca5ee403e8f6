"""The graph kernel: ``step`` turns one fact into one transition, ``apply`` carries a transition out on the rows.

Pure: nothing here reads a clock, a file or a socket, and the same arguments give the same answer.
"""

from collections.abc import Callable
from typing import Any

from sandbox_supervisor.graph import attempts, clocks, commands, dispatch, facts, gate, requests, settle, timers
from sandbox_supervisor.graph.apply import EMPTY, apply
from sandbox_supervisor.graph.commands import command_digest, refused
from sandbox_supervisor.graph.dispatch import ready
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.facts import Fact, Now
from sandbox_supervisor.graph.rows import Change, GraphRow, NodeRow, State
from sandbox_supervisor.graph.sources import Source, sources
from sandbox_supervisor.graph.topology import topology
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import Flow

__all__ = ["EMPTY", "Source", "apply", "command_digest", "initial", "ready", "refused", "sources", "step"]


def initial(
    flow: Flow,
    *,
    task: str = "",
    specification: str = "",
    inputs: dict[str, Any] | None = None,
    attempts_limit: int = 10_000,
) -> Change:
    """Make the rows of a new graph; joins without needs fire at once, nothing is dispatched before the gate opens.

    ``specification`` is a digest that ``log.created`` names.

    Raises ValueError for a flow with a cycle, an unknown need or duplicate keys.
    """
    shape = topology(flow)
    blank = State(
        graph=GraphRow(),
        nodes={key: NodeRow(key=key) for key in shape.nodes},
        attempts={},
        requests={},
        timers={},
        intents={},
    )
    draft = Draft(flow=flow, topology=shape, state=blank, now=Now(instant=0.0, at=""))
    draft.set_graph(task=task, inputs=inputs or {}, attempts_limit=attempts_limit)
    draft.event(EventKind.LOG_CREATED, {"task": task, "specification": specification})
    draft.dirty.update(shape.nodes)
    settle.settle(draft)
    draft.state = EMPTY
    draft.nodes = {key: draft.nodes.get(key, row) for key, row in blank.nodes.items()}
    return draft.change()


def step(flow: Flow, state: State, fact: Fact, now: Now) -> Change:
    """Say what a fact changes: everything of one transition, to be committed at once. ``Change()`` means nothing.

    Raises Refusal for a command, a dispatch or an attempt that the state does not know or allow. A fact about an
    attempt that has ended gives only an ``attempt.late`` event.
    """
    draft = Draft(flow=flow, topology=topology(flow), state=state, now=now)
    _HANDLERS[type(fact)](draft, fact)
    settle.settle(draft)
    return draft.change()


def _effect_done(d: Draft, fact: facts.EffectDone) -> None:
    d.done(fact.intent)
    d.events.extend(fact.events)


def _commanded(d: Draft, fact: facts.Commanded) -> None:
    commands.carry_out(d, fact.command)


_HANDLERS: dict[type, Callable[[Draft, Any], None]] = {
    facts.Restarted: clocks.restarted,
    facts.GateOpened: gate.opened,
    facts.GateClosed: gate.closed,
    facts.Dispatched: dispatch.dispatched,
    facts.Prepared: attempts.prepared,
    facts.Spawned: attempts.spawned,
    facts.Progress: attempts.progressed,
    facts.Asked: requests.asked,
    facts.Finishing: attempts.finishing,
    facts.Succeeded: attempts.succeeded,
    facts.Failed: attempts.failed,
    facts.Ended: attempts.ended,
    facts.Interrupted: attempts.interrupted,
    facts.TimerFired: timers.fired,
    facts.EffectDone: _effect_done,
    facts.Commanded: _commanded,
}
