"""Plays a graph by hand: facts in, states out. Every step checks what must hold after any step."""

from dataclasses import replace
from datetime import datetime, timedelta

from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.facts import (
    Asked,
    Commanded,
    Dispatched,
    Ended,
    Failed,
    GateOpened,
    Interrupted,
    Now,
    Prepared,
    Spawned,
    Succeeded,
    TimerFired,
)
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.graph.rows import AttemptId, Change, NewEvent, RequestRow, StalePlan, State
from sandbox_supervisor.protocol.flow import (
    Agent,
    Approval,
    Changes,
    Command,
    Condition,
    Delivery,
    Flow,
    Join,
    JoinRule,
    Merge,
    Node,
    NodeKind,
    OnSatisfied,
    OnTimeout,
    Operator,
    Rework,
)
from sandbox_supervisor.protocol.messages import Command as PersonsCommand
from sandbox_supervisor.protocol.messages import CommandVerb, Failure
from sandbox_supervisor.protocol.spec import Limits
from sandbox_supervisor.protocol.states import (
    ATTEMPT_ENDED,
    GRAPH_ENDED,
    FailureClass,
    NodeState,
    RequestKind,
    RequestState,
)

LIMITS = Limits(max_parallel_attempts=1000)
BEGINNING = 1000.0  # seconds on the monotonic clock when a play begins


def command(key, *needs, **more):
    return Node(key=key, kind=NodeKind.COMMAND, needs=needs, command=Command(run="true"), **more)


def agent(key, *needs, driver="scripted", **more):
    made = Agent(driver=driver, prompt="do it")
    return Node(key=key, kind=NodeKind.AGENT, needs=needs, agent=made, changes=Changes.KEEP, **more)


def approval(key, *needs, timeout=None, on_timeout="fail", **more):
    asked = Approval(question="Go?", options=("yes", "no"), timeout=timeout, on_timeout=OnTimeout(on_timeout))
    return Node(key=key, kind=NodeKind.APPROVAL, needs=needs, approval=asked, **more)


def delivery(key, *needs, **more):
    return Node(key=key, kind=NodeKind.DELIVERY, needs=needs, delivery=Delivery(), **more)


def merge(key, *needs, by=None, **more):
    made = Merge(agent=Agent(driver=by, prompt="resolve") if by else None)
    return Node(key=key, kind=NodeKind.MERGE, needs=needs, merge=made, changes=Changes.KEEP, **more)


def joined(rule, at_least=None, on_satisfied="let_finish"):
    return Join(rule=JoinRule(rule), at_least=at_least, on_satisfied=OnSatisfied(on_satisfied))


def when(reference, operator, value):
    return Condition(reference=reference, operator=Operator(operator), value=value)


def reworks(target, rounds=2):
    return Rework(node=target, when=(when("result.verdict", "eq", "changes"),), max_rounds=rounds)


def flow(*nodes, last=()):
    return Flow(name="play", nodes=nodes, finally_=tuple(last))


def failure(kind="check_failed", code="broken"):
    return Failure(failure_class=FailureClass(kind), code=code, message="It broke.")


class Play:
    """One graph; ``gate=False`` leaves its gate closed. Time stands still unless ``tick`` moves it."""

    def __init__(self, made: Flow, *, gate=True, limits=LIMITS, drivers=None, **initial):
        self.flow, self.limits, self.drivers = made, limits, drivers or {}
        self.instant = BEGINNING
        self.events: list[NewEvent] = []
        self.changes: list[Change] = []
        self.state: State = kernel.EMPTY
        self.commands = 0
        self._take(kernel.initial(made, task="task", **initial))
        if gate:
            self.do(GateOpened(round=1))

    # --- doing ---

    def now(self):
        at = datetime(2030, 1, 1) + timedelta(seconds=self.instant - BEGINNING)  # noqa: DTZ001 - the zone is in the text
        return Now(instant=self.instant, at=at.isoformat(timespec="milliseconds") + "Z")

    def do(self, fact) -> Change:
        before = self.state
        change = kernel.step(self.flow, before, fact, self.now())
        assert self.state == before
        self._take(change)
        return change

    def _take(self, change):
        before = self.state
        self.state = kernel.apply(before, change)
        self.changes.append(change)
        self.events += change.events
        check_step(before, change)
        check_state(self.state)

    def tick(self, seconds):
        """Let time pass and fire what has become due, in order of time."""
        until = self.instant + seconds
        while due := [row for row in self.state.timers.values() if row.since + row.remaining <= until]:
            row = min(due, key=lambda row: row.since + row.remaining)
            self.instant = max(self.instant, row.since + row.remaining)
            self.do(TimerFired(timer=row.id))
        self.instant = until

    def ready(self):
        return kernel.ready(self.flow, self.state, self.limits, self.drivers)

    def dispatch(self, key) -> AttemptId:
        self.do(Dispatched(node=key))
        return self.attempt(key)

    def start(self, key, pid=1):
        """Take a node's next attempt to running."""
        attempt = self.dispatch(key)
        self.do(Prepared(attempt=attempt, base_commit=f"base-{attempt}"))
        self.do(Spawned(attempt=attempt, identity=Identity(pid=pid, start_time=1, boot_id="boot")))
        return attempt

    def succeed(self, key, result=None, digest=None, artefacts=()):
        attempt = self.attempt(key)
        self.do(
            Succeeded(
                attempt=attempt,
                result_commit=f"commit-{attempt}",
                output_digest=digest or f"digest-{attempt}",
                result=result,
                artefacts=tuple(artefacts),
            )
        )

    def run(self, *keys, result=None, digest=None):
        for key in keys:
            self.start(key)
            self.succeed(key, result=result, digest=digest)

    def fail(self, key, kind="check_failed", **more):
        if self.row(key).active is None:
            self.start(key)
        self.do(Failed(attempt=self.attempt(key), failure=failure(kind), **more))

    def end(self, key, **more):
        self.do(Ended(attempt=self.attempt(key), **more))

    def interrupt(self, key, cause="the runner died"):
        self.do(Interrupted(attempt=self.attempt(key), cause=cause))

    def ask(self, key, request="q1", fingerprint="", options=()):
        row = RequestRow(
            id=request,
            kind=RequestKind.QUESTION,
            node=key,
            attempt=self.row(key).active,
            state=RequestState.OPEN,
            title="Which?",
            fingerprint=fingerprint,
            options=tuple(options),
        )
        return self.do(Asked(request=row))

    def order(self, verb, actor="ada", **arguments):
        self.commands += 1
        made = PersonsCommand(id=f"c{self.commands}", verb=CommandVerb(verb), actor=actor, **arguments)
        return self.do(Commanded(command=made))

    def finish(self, limit=500):
        """Run everything that is ready with success until nothing is."""
        for _ in range(limit):
            keys = [key for key in self.ready() if self.spec(key).kind is not NodeKind.APPROVAL]
            if not keys:
                return
            self.run(keys[0])
        raise AssertionError("the graph does not come to an end")

    # --- seeing ---

    def spec(self, key):
        return next(node for node in self.flow.all_nodes() if node.key == key)

    def row(self, key):
        return self.state.nodes[key]

    def attempt(self, key) -> AttemptId:
        return AttemptId.parse(self.row(key).active)

    def attempts(self, key):
        return [row for row in self.state.attempts.values() if row.id.node == key]

    @property
    def graph(self):
        return self.state.graph

    def states(self):
        return {key: str(row.state) for key, row in self.state.nodes.items()}

    def is_(self, **states):
        found = self.states()
        assert {key: found[key] for key in states} == states, found

    def kinds(self):
        return [str(event.kind) for event in self.events]

    def intents(self, kind):
        return [row for row in self.state.intents.values() if row.kind == kind]


# --- what holds after every step -------------------------------------------------------------------------------------


def check_step(before: State, change: Change):
    for node in change.nodes:
        old = before.nodes.get(node.key)
        assert node.rev == (old.rev + 1 if old else 1)
        assert old is None or node.generation >= old.generation
    for attempt in change.attempts:
        known = before.attempts.get(str(attempt.id))
        assert attempt.rev == (known.rev + 1 if known else 1)
        assert known is None or known.state not in ATTEMPT_ENDED, "a terminal attempt was changed"
    for request in change.requests:
        asked = before.requests.get(request.id)
        assert asked is None or asked.state is RequestState.OPEN, "a closed request was changed"
    if change.graph:
        assert change.graph.rev == before.graph.rev + 1
        assert change.graph.round >= before.graph.round


def check_state(state: State):
    live = {key for key, row in state.attempts.items() if row.state not in ATTEMPT_ENDED}
    assert {row.active for row in state.nodes.values() if row.active} == live
    for node in state.nodes.values():
        assert (node.state in (NodeState.RUNNING, NodeState.NEEDS_INPUT)) == (node.active is not None), node
        assert (node.state is NodeState.STALE) == (node.stale is not None), node
        assert node.clock_since is None or node.active
    for request in state.requests.values():
        assert request.attempt in live or request.state is not RequestState.OPEN
    for intent in state.intents.values():
        owner = intent.data.get("attempt", intent.subject)
        assert owner not in state.attempts or owner in live, f"{intent.id} is wanted for an attempt that has ended"
    if state.graph.state in GRAPH_ENDED:
        check_end(state, live)


def check_end(state: State, live: set[str]):
    assert not live
    assert not state.timers
    assert all(row.state not in (NodeState.WAITING, NodeState.READY) for row in state.nodes.values())
    assert all(row.stale in (None, StalePlan.KEPT) for row in state.nodes.values())


def replayed(changes):
    state = kernel.EMPTY
    for change in changes:
        state = kernel.apply(state, replace(change, events=()))
    return state
