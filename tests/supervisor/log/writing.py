"""Small transitions to fill logs with."""

from sandbox_supervisor.graph.rows import (
    AttemptId,
    AttemptRow,
    Change,
    CommandRow,
    GraphRow,
    Intent,
    NewEvent,
    NodeRow,
    TimerRow,
)
from sandbox_supervisor.protocol.messages import CommandOutcome, OutcomeCode
from sandbox_supervisor.protocol.states import AttemptState


def event(kind="session.note", attempt=None, **data):
    return NewEvent(kind=kind, attempt=attempt, data=data)


def events(*texts):
    return Change(events=tuple(event(text=text) for text in texts))


def node(key, rev, **more):
    return Change(nodes=(NodeRow(key=key, rev=rev, **more),), events=(event("node.state", rev=rev),))


def command(key, *, told=True):
    row = CommandRow(id=key, digest="d", outcome=CommandOutcome(code=OutcomeCode.DONE))
    return Change(command=row, events=(event(), event("command.done", id=key)) if told else ())


def attempt(text, rev=1, **more):
    row = AttemptRow(id=AttemptId.parse(text), state=AttemptState.RUNNING, rev=rev, **more)
    return Change(attempts=(row,), events=(event(), event("attempt.state", attempt=text)))


def everything():
    """A change that touches every table."""
    return Change(
        graph=GraphRow(task="t", rev=1),
        nodes=(NodeRow(key="a", rev=1, result={"n": 1.5, "deep": [None, "ü"]}),),
        attempts=(AttemptRow(id=AttemptId(node="a", generation=1, n=1), state=AttemptState.STARTING, rev=1),),
        timers_set=(TimerRow(id="node:a", what="node", subject="a", remaining=1.25, since=2.0),),
        intents=(Intent(id="go:a.1.1", kind="go", subject="a.1.1"), Intent(id="x:1", kind="x", subject="1")),
        command=CommandRow(id="c1", digest="d", outcome=CommandOutcome(code=OutcomeCode.DONE)),
        events=(event(), event("command.done")),
    )
