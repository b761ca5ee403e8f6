"""The document as the later checks see it: its nodes by key, as far as they can be understood."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from registry_app.flows.problems import Finding, Path, pointer
from registry_app.flows.shape import KINDS
from sandbox_supervisor.protocol.flow import Node


@dataclass(frozen=True, slots=True)
class DraftNode:
    """``needs`` holds what is there, known or not; ``node`` is None while the node's own shape is wrong."""

    key: str
    path: Path
    raw: Mapping[str, Any]
    needs: tuple[str, ...]
    kind: str | None
    final: bool
    node: Node | None = None


@dataclass(frozen=True)
class Draft:
    """All nodes with a key of their own, in definition order; a second node of the same key is left out."""

    nodes: dict[str, DraftNode]
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def known_needs(self) -> dict[str, tuple[str, ...]]:
        """Edges between nodes that exist; an edge to itself, and one from the body to ``finally``, is left out."""
        return {
            key: tuple(
                need
                for need in dict.fromkeys(draft.needs)
                if need in self.nodes and need != key and (draft.final or not self.nodes[need].final)
            )
            for key, draft in self.nodes.items()
        }

    @cached_property
    def dependants(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {key: [] for key in self.nodes}
        for key, needs in self.known_needs.items():
            for need in needs:
                found[need].append(key)
        return {key: tuple(keys) for key, keys in found.items()}

    @cached_property
    def ancestors(self) -> dict[str, frozenset[str]]:
        """What each node depends on, directly or not; also every body node for one of ``finally``."""
        order = list(self.nodes)
        bit = {key: 1 << index for index, key in enumerate(order)}
        masks = dict.fromkeys(order, 0)
        for key in self.order:
            for need in self.known_needs[key]:
                masks[key] |= masks[need] | bit[need]
        body = sum(bit[key] for key in order if not self.nodes[key].final)
        wanted = {key: masks[key] | (body if self.nodes[key].final else 0) for key in order}
        return {
            key: frozenset(other for other in order if mask & bit[other] and other != key)
            for key, mask in wanted.items()
        }

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Every node after what it needs; nodes on or behind a cycle come last, in definition order."""
        missing = {key: len(needs) for key, needs in self.known_needs.items()}
        order = [key for key, count in missing.items() if not count]
        for key in order:  # grows while it is walked
            for dependant in self.dependants[key]:
                missing[dependant] -= 1
                if not missing[dependant]:
                    order.append(dependant)
        return (*order, *(key for key in self.nodes if missing[key]))

    @cached_property
    def in_cycles(self) -> frozenset[str]:
        """Nodes that wait for themselves, directly or behind others."""
        done = set()
        for key in self.order:
            if all(need in done for need in self.known_needs[key]):
                done.add(key)
        return frozenset(self.nodes) - done


def raw_nodes(data: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Give every node that is a mapping, with its path: the body first."""
    for section in ("nodes", "finally"):
        items = data.get(section)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                yield (section, index), item


def sketch(path: Path, raw: Mapping[str, Any], node: Node | None) -> DraftNode | None:
    """Take from a node what can be used even when its shape is wrong; None without a key."""
    key = raw.get("key")
    if not isinstance(key, str):
        return None
    needs = raw.get("needs")
    kinds = [kind for kind in KINDS if kind in raw]
    return DraftNode(
        key=key,
        path=path,
        raw=raw,
        needs=tuple(need for need in needs if isinstance(need, str)) if isinstance(needs, list) else (),
        kind=kinds[0] if len(kinds) == 1 else None,
        final=path[0] == "finally",
        node=node,
    )


def gather(sketches: list[DraftNode], inputs: Mapping[str, Any]) -> tuple[Draft, list[Finding]]:
    """Index the nodes by key; a key that stands twice is a finding."""
    nodes: dict[str, DraftNode] = {}
    findings = []
    for one in sketches:
        if one.key in nodes:
            first = pointer(nodes[one.key].path)
            findings.append(
                Finding("duplicate_node", (*one.path, "key"), f"The key {one.key!r} is taken by the node {first}.")
            )
        else:
            nodes[one.key] = one
    return Draft(nodes, inputs), findings
