"""Check the graph: needs, cycles, joins, rework, where deliveries stand."""

from collections.abc import Iterator, Sequence

from registry_app.flows.draft import Draft, DraftNode
from registry_app.flows.problems import Finding, brief, guess, plain
from sandbox_supervisor.protocol.flow import JoinRule, NodeKind, OnSatisfied

MOST_NAMED = 12  # nodes in one message
RESERVED_KEYS = frozenset({"inputs", "result"})
_PARTIAL = frozenset({JoinRule.ANY_SUCCESS, JoinRule.AT_LEAST})
_REWORKABLE = frozenset({"agent", "command", "merge"})


def check_graph(draft: Draft) -> Iterator[Finding]:
    """Name everything that is wrong with the edges; nodes with a wrong shape take part as far as they can."""
    for node in draft.nodes.values():
        if node.key in RESERVED_KEYS:
            yield Finding(
                "reserved_key",
                (*node.path, "key"),
                f"A node cannot be called {brief(node.key)}: references use the word.",
            )
        yield from _needs(draft, node)
        yield from _join(draft, node)
        yield from _rework(draft, node)
        yield from _kind(draft, node)
    yield from _cycles(draft)


def _needs(draft: Draft, node: DraftNode) -> Iterator[Finding]:
    for index, need in enumerate(node.needs):
        path = (*node.path, "needs", index)
        if need == node.key:
            yield Finding("self_need", path, f"The node {brief(node.key)} needs itself.")
        elif need not in draft.nodes:
            yield Finding("unknown_need", path, f"There is no node {brief(need)}.", guess(need, draft.nodes))
        elif draft.nodes[need].final and not node.final:
            yield Finding(
                "needs_finally", path, f"The node {brief(need)} stands in finally, which runs after this one."
            )


def _join(draft: Draft, node: DraftNode) -> Iterator[Finding]:
    if node.node is None:
        return
    join, path, count = node.node.join, (*node.path, "join"), len(node.node.needs)
    if join.rule is JoinRule.AT_LEAST and (join.at_least or 0) > count:
        message = f"At least {join.at_least} of {count} needs can never succeed."
        yield Finding("join_impossible", path, message, "Ask for fewer, or add needs.")
    elif join.rule is JoinRule.ANY_SUCCESS and count == 0:
        yield Finding(
            "join_impossible", path, "Without needs none of them can succeed.", "Add needs, or leave the join out."
        )
    if join.on_satisfied is OnSatisfied.CANCEL_REST and join.rule not in _PARTIAL:
        message = f"Under {join.rule} no need is left to cancel when the join holds."
        yield Finding("join_pointless", path, message, "cancel_rest goes with any_success and at_least.")


def _rework(draft: Draft, node: DraftNode) -> Iterator[Finding]:
    if node.node is None or node.node.rework is None:
        return
    path, target = (*node.path, "rework", "node"), node.node.rework.node
    if node.final:
        yield Finding("rework_in_finally", (*node.path, "rework"), "A node of finally cannot ask for rework.")
    elif target not in draft.nodes:
        yield Finding(
            "unknown_need", path, f"There is no node {brief(target)}.", guess(target, draft.ancestors[node.key])
        )
    elif target not in draft.ancestors[node.key]:
        message = (
            f"{brief(target)} is no ancestor of {brief(node.key)}: rework goes back to a node that this one depends on."
        )
        yield Finding("rework_target", path, message, guess(target, draft.ancestors[node.key]))
    elif draft.nodes[target].kind not in (None, *_REWORKABLE):
        yield Finding(
            "rework_target", path, f"{brief(target)} is of kind {draft.nodes[target].kind}, which takes no feedback."
        )


def _kind(draft: Draft, node: DraftNode) -> Iterator[Finding]:
    if node.kind == NodeKind.DELIVERY:
        behind = [other for other in draft.dependants[node.key] if not draft.nodes[other].final]
        if node.final:
            message = "finally also runs after a failure or a cancel; nothing may be delivered there."
            yield Finding("delivery_in_finally", (*node.path, "delivery"), message)
        elif behind:
            message = f"Nothing may follow a delivery but finally; here: {_named(behind, ', ')}."
            yield Finding("delivery_has_descendants", (*node.path, "delivery"), message)
    if node.kind == NodeKind.MERGE and len(set(node.needs)) < 2:
        yield Finding(
            "merge_without_sides", node.path, "A merge joins the work of at least two nodes; name them in needs."
        )


def _cycles(draft: Draft) -> Iterator[Finding]:
    """Name one cycle of each knot of nodes that wait for each other, in the order in which they would run."""
    left = set(draft.in_cycles)
    for key in draft.nodes:
        knot = _closure(draft.known_needs, key) & _closure(draft.dependants, key) if key in left else set()
        if not knot:
            continue
        left -= knot
        cycle = _round_trip(draft, key, knot)
        message = f"These nodes wait for each other: {_named((*cycle, cycle[0]), ' → ')}."
        yield Finding("cycle", (*draft.nodes[cycle[0]].path, "needs"), message, "Take one of these needs away.")


def _named(keys: Sequence[str], between: str) -> str:
    """Name nodes in a row; of a long row the first and the last ones."""
    shown = [plain(key) for key in keys]
    if len(shown) > MOST_NAMED:
        shown = [*shown[: MOST_NAMED - 2], f"({len(shown) - MOST_NAMED + 1} more)", shown[-1]]
    return between.join(shown)


def _round_trip(draft: Draft, start: str, knot: set[str]) -> list[str]:
    """Follow needs inside the knot until a node comes again; give that round beginning with the node defined first."""
    trail: list[str] = []
    key = start
    while key not in trail:
        trail.append(key)
        key = next(need for need in draft.known_needs[key] if need in knot)
    found = trail[trail.index(key) :][::-1]
    definition = list(draft.nodes)
    first = found.index(min(found, key=definition.index))
    return found[first:] + found[:first]


def _closure(edges: dict[str, tuple[str, ...]], key: str) -> set[str]:
    found: set[str] = set()
    todo = list(edges[key])
    while todo:
        other = todo.pop()
        if other not in found:
            found.add(other)
            todo.extend(edges[other])
    return found
