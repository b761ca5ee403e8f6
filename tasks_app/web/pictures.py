"""Put what is known of the nodes onto the frozen flow: the node list, the graph, the bar."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from registry_app.flows.layout import Arc, Box, Edge, Picture, draw
from sandbox_supervisor.protocol.flow import Flow, Node
from sandbox_supervisor.protocol.messages import AttemptView, NodeView, Snapshot
from sandbox_supervisor.protocol.states import NODE_ENDED, NODE_LETTERS, NodeState
from tasks_app.web import times, vocabulary
from tasks_app.web.vocabulary import Sign

STATES_BY_LETTER = {letter: state for state, letter in NODE_LETTERS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """One node as page and graph show it."""

    key: str
    title: str
    kind: str
    state: NodeState
    note: str  # what stands beside the word: the failure, how long it took, the kind of a waiting node
    box: Box
    attempts: tuple[AttemptView, ...] = ()
    generation: int = 1
    round_note: str = ""
    view: NodeView | None = None

    @property
    def sign(self) -> Sign:
        return vocabulary.NODE[self.state]

    @property
    def started_at(self) -> str | None:
        return self.view.started_at if self.view else None

    @property
    def ended_at(self) -> str | None:
        return self.view.ended_at if self.view else None

    @property
    def took(self) -> str:
        """Say how long its present generation worked, empty until it has ended."""
        return times.took(self.started_at, self.ended_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEdge:
    edge: Edge
    kind: str  # "" | done | skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnArc:
    arc: Arc
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPicture:
    picture: Picture
    nodes: tuple[NodeLine, ...]
    edges: tuple[DrawnEdge, ...]
    arcs: tuple[DrawnArc, ...]

    @property
    def finally_x(self) -> int:
        """Give where the word over the band of ``finally`` nodes begins; they are the last ones."""
        return min(
            (line.box.x for line in self.nodes if line.box.y > (self.picture.finally_y or line.box.y)), default=0
        )

    @property
    def groups(self) -> list[tuple[str, list[NodeLine]]]:
        """Nodes by what a person would look for first; empty groups are left out."""
        found = [(name, [line for line in self.nodes if line.state in states]) for name, states in vocabulary.GROUPS]
        return [(name, lines) for name, lines in found if lines]

    @property
    def done(self) -> int:
        return sum(line.state in NODE_ENDED for line in self.nodes)

    @property
    def summary(self) -> str:
        return bar_summary([line.state for line in self.nodes])


@lru_cache(maxsize=64)
def _drawn(digest: str, canonical: bytes) -> Picture:
    from sandbox_supervisor.protocol import codec

    return draw(codec.decode(canonical, Flow))


def flow_picture(flow: Flow, *, digest: str, canonical: bytes, snapshot: Snapshot | None, bar: str = "") -> FlowPicture:
    """Lay the snapshot over the frozen flow. Without one, ``bar`` (of the last heartbeat) tells the states."""
    picture = _drawn(digest, canonical)
    heard = dict(zip((node.key for node in flow.all_nodes()), bar_states(bar), strict=False))
    views = {view.key: view for view in snapshot.nodes} if snapshot else {}
    attempts = snapshot.attempts if snapshot else ()
    lines = tuple(
        _line(node, box, views.get(node.key), attempts, heard.get(node.key, NodeState.WAITING))
        for node, box in zip(flow.all_nodes(), picture.boxes, strict=True)
    )
    states = {line.key: line.state for line in lines}
    return FlowPicture(
        picture=picture,
        nodes=lines,
        edges=tuple(DrawnEdge(edge=edge, kind=_edge_kind(states[edge.source])) for edge in picture.edges),
        arcs=tuple(
            DrawnArc(arc=arc, rounds=views[arc.source].rounds if arc.source in views else 0) for arc in picture.arcs
        ),
    )


def bar_states(bar: str) -> list[NodeState]:
    """Read a heartbeat's bar; letters of a newer supervisor count as waiting."""
    return [STATES_BY_LETTER.get(letter, NodeState.WAITING) for letter in bar]


def bar_summary(states: Sequence[NodeState]) -> str:
    """Say a bar in words: ``10 nodes: 2 succeeded, 1 needs input``."""
    counts = Counter(vocabulary.NODE[state].word for state in states)
    return f"{len(states)} nodes: " + ", ".join(f"{count} {word}" for word, count in counts.most_common())


def _line(node: Node, box: Box, view: NodeView | None, attempts: Sequence[AttemptView], heard: NodeState) -> NodeLine:
    state = view.state if view else heard
    return NodeLine(
        key=node.key,
        title=node.title or node.key,
        kind=node.kind,
        state=state,
        note=_note(node, view, state),
        box=box,
        attempts=tuple(each for each in attempts if each.node == node.key),
        generation=view.generation if view else 1,
        round_note=f"gen {view.generation}" if view and view.generation > 1 else "",
        view=view,
    )


def _note(node: Node, view: NodeView | None, state: NodeState) -> str:
    if state in {NodeState.WAITING, NodeState.READY}:
        return node.kind
    if view is None:
        return "last heard"
    if view.failure and view.state is NodeState.FAILED:
        return view.failure.code.replace("_", " ")
    if view.ended_at:
        return times.took(view.started_at, view.ended_at)
    tries = sum(attempt.rsplit(".", 2)[1] == str(view.generation) for attempt in view.attempts)
    return f"attempt {tries}" if tries > 1 else ""


def _edge_kind(source: NodeState) -> str:
    if source is NodeState.SUCCEEDED:
        return "done"
    return "skip" if source in {NodeState.SKIPPED, NodeState.UNREACHABLE, NodeState.CANCELLED} else ""
