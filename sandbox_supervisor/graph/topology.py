"""What follows from a flow's edges alone: order, ancestors, descendants, length of the longest way to an end."""

from dataclasses import dataclass

from sandbox_supervisor.protocol.flow import Flow, Node

_CACHE_SIZE = 8


@dataclass(frozen=True, slots=True)
class Topology:
    nodes: dict[str, Node]  # in definition order, the ``finally`` ones last
    index: dict[str, int]  # definition order
    order: dict[str, int]  # every node after its needs; among equals definition order
    dependants: dict[str, tuple[str, ...]]
    askers: dict[str, tuple[str, ...]]  # who may ask this node for rework: they wait for it, needed directly or not
    body: tuple[str, ...]  # outside ``finally``, in definition order
    finals: frozenset[str]
    length: dict[str, int]  # nodes on the longest path from here to an end, this one included

    def descendants(self, *keys: str) -> set[str]:
        """Everything that depends on one of ``keys``, directly or not."""
        return _closure(keys, self.dependants)

    def ancestors(self, *keys: str) -> set[str]:
        """Everything that one of ``keys`` depends on, directly or not."""
        return _closure(keys, {key: node.needs for key, node in self.nodes.items()})


def _closure(keys: tuple[str, ...], edges: dict[str, tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    todo = [other for key in keys for other in edges[key]]
    while todo:
        key = todo.pop()
        if key not in found:
            found.add(key)
            todo.extend(edges[key])
    return found


_cache: list[tuple[Flow, Topology]] = []


def topology(flow: Flow) -> Topology:
    """Give the topology of a frozen flow; computed once per flow object.

    Raises ValueError for duplicate keys, unknown needs, a rework of a node that is no ancestor, and cycles.
    """
    for known, found in _cache:
        if known is flow:
            return found
    made = _build(flow)
    _cache.insert(0, (flow, made))
    del _cache[_CACHE_SIZE:]
    return made


def _build(flow: Flow) -> Topology:
    nodes = {node.key: node for node in flow.all_nodes()}
    if len(nodes) != len(flow.all_nodes()):
        raise ValueError("two nodes of the flow have the same key")
    dependants = _dependants(nodes)
    order = _order(nodes, dependants)
    made = Topology(
        nodes=nodes,
        index={key: at for at, key in enumerate(nodes)},
        order={key: at for at, key in enumerate(order)},
        dependants=dependants,
        askers=_askers(nodes),
        body=tuple(node.key for node in flow.nodes),
        finals=frozenset(node.key for node in flow.finally_),
        length=_lengths(order, dependants),
    )
    _check_edges(made)
    return made


def _askers(nodes: dict[str, Node]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(node.key for node in nodes.values() if node.rework and node.rework.node == key) for key in nodes}


def _dependants(nodes: dict[str, Node]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {key: [] for key in nodes}
    for node in nodes.values():
        for need in node.needs:
            if need not in nodes:
                raise ValueError(f"node {node.key} needs {need}, which does not exist")
            found[need].append(node.key)
    return {key: tuple(dict.fromkeys(keys)) for key, keys in found.items()}


def _order(nodes: dict[str, Node], dependants: dict[str, tuple[str, ...]]) -> list[str]:
    missing = {key: len(set(node.needs)) for key, node in nodes.items()}
    order = [key for key, count in missing.items() if not count]
    for key in order:  # grows while it is walked
        for dependant in dependants[key]:
            missing[dependant] -= 1
            if not missing[dependant]:
                order.append(dependant)
    if len(order) != len(nodes):
        raise ValueError("the flow has a cycle through " + ", ".join(sorted(key for key in nodes if missing[key])))
    return order


def _lengths(order: list[str], dependants: dict[str, tuple[str, ...]]) -> dict[str, int]:
    length: dict[str, int] = {}
    for key in reversed(order):
        length[key] = 1 + max((length[dependant] for dependant in dependants[key]), default=0)
    return length


def _check_edges(made: Topology) -> None:
    for key, node in made.nodes.items():
        if key not in made.finals and made.finals.intersection(node.needs):
            raise ValueError(f"node {key} needs a node of finally")
        if node.rework is None:
            continue
        if key in made.finals:
            raise ValueError(f"node {key} of finally cannot ask for rework")
        if node.rework.node not in made.nodes or node.rework.node not in made.ancestors(key):
            raise ValueError(f"node {key} reworks {node.rework.node}, which is none of its ancestors")
