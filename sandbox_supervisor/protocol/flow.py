"""The compiled, frozen flow: what the compiler emits and the supervisor executes.

Durations are seconds (float), sizes bytes (int). Field order is the canonical order; ``codec.canonical`` gives the
bytes whose sha-256 is the flow version's digest.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox_supervisor.protocol.states import FailureClass


class NodeKind(StrEnum):
    AGENT = "agent"
    COMMAND = "command"
    APPROVAL = "approval"
    MERGE = "merge"
    DELIVERY = "delivery"


class JoinRule(StrEnum):
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ANY_SUCCESS = "any_success"
    AT_LEAST = "at_least"
    ALWAYS = "always"


class OnSatisfied(StrEnum):
    LET_FINISH = "let_finish"
    CANCEL_REST = "cancel_rest"


class Changes(StrEnum):
    """What becomes of an attempt's edits: its own result commit, or its base passed through."""

    KEEP = "keep"
    DISCARD = "discard"


class Operator(StrEnum):
    EQ = "eq"
    IN = "in"
    NOT = "not"
    GT = "gt"
    LT = "lt"
    EXISTS = "exists"


class OnConflict(StrEnum):
    AGENT = "agent"
    ASK = "ask"
    FAIL = "fail"


class OnTimeout(StrEnum):
    FAIL = "fail"
    SKIP = "skip"


class Permissions(StrEnum):
    """Who answers an agent's permission request."""

    ASK = "ask"
    ALLOW = "allow"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """``reference``: ``<node>.result.<field>``, ``<node>.outcome``, ``inputs.<name>``; of a rework ``result.<f>``."""

    reference: str
    operator: Operator
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    rule: JoinRule = JoinRule.NONE_FAILED_MIN_ONE_SUCCESS
    at_least: int | None = None
    on_satisfied: OnSatisfied = OnSatisfied.LET_FINISH


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """``limit`` counts further tries of the classes in ``on``; ``infra`` failures have a budget of their own."""

    limit: int = 0
    on: tuple[FailureClass, ...] = (FailureClass.RATE_LIMITED, FailureClass.AGENT_ERROR)
    infra_limit: int = 2
    backoff: float = 1.0  # seconds before the first further try; doubles each time, at most 100 times itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    attempt: float | None = None
    node: float | None = None  # across attempts of one generation


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtefactRule:
    path: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    driver: str
    prompt: str  # Jinja2 template
    model: str | None = None
    result: dict[str, Any] | None = None  # JSON Schema of the declared result
    permissions: Permissions = Permissions.ASK
    playbook: list[dict[str, Any]] | None = None  # only for a driver of protocol ``scripted``
    skills: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Either ``run`` with a ``shell``, or ``argv``. Both are templates; exit code 0 is success."""

    run: str | None = None
    shell: str = "sh"
    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    result: dict[str, Any] | None = None  # JSON Schema of what the command writes to $CAISSON_RESULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The first option means yes: it succeeds the node; any other option fails it with ``check_failed``."""

    question: str
    options: tuple[str, ...] = ("yes", "no")
    timeout: float | None = None  # None only with wait_forever
    on_timeout: OnTimeout = OnTimeout.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    on_conflict: OnConflict = OnConflict.FAIL
    agent: Agent | None = None  # who resolves, for ``agent``


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    title: str = "{{ task.title }}"
    body: str = ""
    draft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    change_request: ChangeRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rework:
    node: str
    when: tuple[Condition, ...]
    max_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step. Exactly the field named by ``kind`` is set among agent, command, approval, merge, delivery."""

    key: str
    kind: NodeKind
    title: str = ""
    needs: tuple[str, ...] = ()
    join: Join = Join()
    when: tuple[Condition, ...] = ()
    retry: Retry = Retry()
    timeout: Timeout = Timeout()
    changes: Changes = Changes.DISCARD
    artefacts: tuple[ArtefactRule, ...] = ()
    agent: Agent | None = None
    command: Command | None = None
    approval: Approval | None = None
    merge: Merge | None = None
    delivery: Delivery | None = None
    rework: Rework | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    name: str
    nodes: tuple[Node, ...]
    finally_: tuple[Node, ...] = ()
    description: str = ""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # name → JSON Schema fragment with ``default``

    def all_nodes(self) -> tuple[Node, ...]:
        """Every node, the ``finally`` ones last, in definition order."""
        return self.nodes + self.finally_
