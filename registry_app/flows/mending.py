"""Leave out of a node what has the wrong shape, so that the rest of it can be judged as well."""

import copy
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from registry_app.flows.problems import Finding, Path
from registry_app.flows.shape import check_shape

# Without these nothing sensible can be said of others: what comes before the node, and what it gives to those behind.
_NEEDED = frozenset({"needs", "result"})
# Lowering finds these where something is missing: of a mended node that may be what was left out.
OF_ABSENCE = frozenset({"driver_missing", "playbook_missing", "no_timeout", "merge_agent", "not_applicable"})


def mended(raw: Mapping[str, Any], wrong: Iterable[Path]) -> Mapping[str, Any] | None:
    """Give ``raw`` without the places that are ``wrong``, or without what is around them; None if that is no node."""
    spots = [tuple(takewhile(lambda step: isinstance(step, str), path)) for path in wrong]
    if not all(spots) or any(_NEEDED.intersection(spot) for spot in spots):
        return None
    for depth in (max(map(len, spots)), 2, 1):
        left = copy.deepcopy(dict(raw))
        for spot in spots:
            _take_out(left, spot[:depth])
        if _is_node(left):
            return left
    return None


def of_the_rest(findings: Iterable[Finding]) -> list[Finding]:
    """Keep what was found in a mended node and cannot come from the mending."""
    return [finding for finding in findings if finding.code not in OF_ABSENCE]


def _take_out(node: dict[str, Any], spot: Path) -> None:
    holder: Any = node
    for step in spot[:-1]:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder.pop(spot[-1], None)


def _is_node(node: Mapping[str, Any]) -> bool:
    flow = {"apiVersion": "caisson/v1", "kind": "Flow", "name": "x", "nodes": [node]}
    return not check_shape(flow, 1)
