"""The worst case of a flow: how many attempts it may make and how long it may take."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from registry_app.flows.draft import Draft
from registry_app.flows.problems import Finding
from sandbox_supervisor.protocol.flow import Agent, Node, NodeKind, Permissions

MAX_ATTEMPTS = 10_000
DELIVERY_SECONDS = 900.0  # a push with its retries, where a delivery names no time-out of its own
_LONGEST_BACKOFF = 100  # times the first one


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """What cannot be exceeded, in attempts and seconds. Time-outs of approvals count.

    ``longest_path`` is with a free slot for every attempt, ``one_by_one`` with a single slot. The time in which agents
    wait for an answer of a person is left out; ``waits_for_people`` names the nodes that may ask.
    """

    attempts: Mapping[str, int]
    total_attempts: int
    longest_path: float
    one_by_one: float
    waits_for_people: tuple[str, ...]


def worst_case(draft: Draft) -> WorstCase:
    """Compute it for a flow without problems."""
    generations = _generations(draft)
    attempts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    finish: dict[str, float] = {}
    for key in draft.order:
        node = draft.nodes[key].node
        if node is None:
            continue
        attempts[key] = generations[key] * tries(node)
        seconds[key] = generations[key] * _seconds(node)
        finish[key] = seconds[key] + max((finish[need] for need in draft.known_needs[key]), default=0.0)
    body = max((finish[key] for key in finish if not draft.nodes[key].final), default=0.0)
    ending = max((finish[key] for key in finish if draft.nodes[key].final), default=0.0)
    return WorstCase(
        attempts={key: attempts[key] for key in draft.nodes if key in attempts},
        total_attempts=sum(attempts.values()),
        longest_path=body + ending,
        one_by_one=sum(seconds.values()),
        waits_for_people=tuple(key for key, one in draft.nodes.items() if one.node and _asks(one.node)),
    )


def check_bounds(draft: Draft, case: WorstCase) -> Iterator[Finding]:
    if case.total_attempts > MAX_ATTEMPTS:
        key = max(case.attempts, key=lambda name: case.attempts[name])
        message = f"The flow may make {case.total_attempts} attempts; at most {MAX_ATTEMPTS} are allowed."
        yield Finding(
            "too_many_attempts", draft.nodes[key].path, message, f"{key!r} alone may make {case.attempts[key]}."
        )


def tries(node: Node) -> int:
    """Give how many attempts one generation of a node may take."""
    if node.kind is NodeKind.APPROVAL:
        return 1
    return 1 + node.retry.limit + node.retry.infra_limit


def _generations(draft: Draft) -> dict[str, int]:
    """Every rework round runs its target anew, and all that depends on it."""
    found = dict.fromkeys(draft.nodes, 1)
    for one in draft.nodes.values():
        rework = one.node.rework if one.node else None
        if rework is None or rework.node not in draft.nodes:
            continue
        for key in {rework.node, *_dependants(draft, rework.node)}:
            found[key] += rework.max_rounds
    return found


def _dependants(draft: Draft, key: str) -> set[str]:
    return {other for other, ancestors in draft.ancestors.items() if key in ancestors and not draft.nodes[other].final}


def _seconds(node: Node) -> float:
    """Give how long one generation may take, pauses between tries included."""
    if node.approval is not None:
        return node.approval.timeout or 0.0
    if node.timeout.node is not None:
        return node.timeout.node
    attempt = node.timeout.attempt or 0.0
    if node.kind is NodeKind.DELIVERY:
        attempt = min(attempt, DELIVERY_SECONDS)
    pauses = sum(node.retry.backoff * min(2.0**n, _LONGEST_BACKOFF) for n in range(tries(node) - 1))
    return tries(node) * attempt + pauses


def _asks(node: Node) -> bool:
    agents: list[Agent | None] = [node.agent, node.merge.agent if node.merge else None]
    return node.kind is NodeKind.APPROVAL or any(agent and agent.permissions is Permissions.ASK for agent in agents)
