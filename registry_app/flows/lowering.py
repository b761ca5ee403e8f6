"""Turn a node whose shape is right into a node of the protocol: defaults filled in, durations in seconds."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from registry_app.flows.problems import Finding, Path
from registry_app.flows.shape import KINDS
from sandbox_supervisor.protocol.flow import (
    Agent,
    Approval,
    ArtefactRule,
    ChangeRequest,
    Changes,
    Command,
    Condition,
    Delivery,
    Join,
    JoinRule,
    Merge,
    Node,
    NodeKind,
    OnConflict,
    OnSatisfied,
    OnTimeout,
    Operator,
    Permissions,
    Retry,
    Rework,
    Timeout,
)
from sandbox_supervisor.protocol.playbook_reader import read_playbook
from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.protocol.units import DURATION_HINT, read_duration

DEFAULT_ATTEMPT_TIMEOUT = 3600.0  # seconds, for nodes that start a process
_OPERATORS = {"not": Operator.NOT, "gt": Operator.GT, "lt": Operator.LT, "exists": Operator.EXISTS}
_NOT_APPLICABLE: dict[NodeKind, tuple[str, ...]] = {
    NodeKind.APPROVAL: ("retry", "timeout", "artefacts", "changes"),
    NodeKind.DELIVERY: ("artefacts", "changes"),
    NodeKind.MERGE: ("changes",),
}


class Lowering:
    """Lower one node; what is found on the way stands in ``findings``."""

    def __init__(self, path: Path, raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.path = path
        self.raw = raw
        self.defaults = defaults
        self.findings: list[Finding] = []

    def node(self) -> Node:
        raw = self.raw
        kind = NodeKind(next(kind for kind in KINDS if kind in raw))
        for key in _NOT_APPLICABLE.get(kind, ()):
            if key in raw:
                self._find("not_applicable", (key,), f"{key!r} has no meaning for a node of kind {kind}.")
        return Node(
            key=raw["key"],
            kind=kind,
            title=raw.get("title", ""),
            needs=tuple(raw.get("needs", ())),
            join=self._join(raw.get("join", str(JoinRule.NONE_FAILED_MIN_ONE_SUCCESS))),
            when=_conditions(raw.get("when", {})),
            retry=self._retry(),
            timeout=self._timeout(kind),
            changes=self._changes(kind),
            artefacts=self._artefacts(),
            agent=self._agent(("agent",), raw["agent"]) if kind is NodeKind.AGENT else None,
            command=self._command(raw["command"]) if kind is NodeKind.COMMAND else None,
            approval=self._approval(raw["approval"]) if kind is NodeKind.APPROVAL else None,
            merge=self._merge(raw["merge"]) if kind is NodeKind.MERGE else None,
            delivery=_delivery(raw["delivery"]) if kind is NodeKind.DELIVERY else None,
            rework=_rework(raw["rework"]) if "rework" in raw else None,
        )

    def _find(self, code: str, inside: Path, message: str, hint: str = "") -> None:
        self.findings.append(Finding(code, (*self.path, *inside), message, hint))

    def _seconds(self, text: str, *inside: str) -> float:
        """Read a duration of this node, or of the defaults when it is not the node's own."""
        own = isinstance(self.raw.get(inside[0]), dict) and inside[1] in self.raw[inside[0]]
        path: Path = (*self.path, *inside) if own else ("defaults", *inside)
        try:
            seconds = read_duration(text).total_seconds()
        except ValueError as error:
            hint = f"{DURATION_HINT[0].upper()}{DURATION_HINT[1:]}."
            self.findings.append(Finding("duration", path, f"{text!r}: {error}.", hint))
            return 0.0
        if not seconds and inside[0] != "retry":
            self.findings.append(Finding("duration", path, "A time-out is longer than nothing."))
        return seconds

    def _join(self, raw: Any) -> Join:
        if isinstance(raw, str):
            return Join(rule=JoinRule(raw))
        wanted = raw.get("at_least")
        return Join(
            rule=JoinRule.AT_LEAST if wanted is not None else JoinRule(raw["rule"]),
            at_least=wanted,
            on_satisfied=OnSatisfied(raw.get("on_satisfied", OnSatisfied.LET_FINISH)),
        )

    def _retry(self) -> Retry:
        raw = {**self.defaults.get("retry", {}), **self.raw.get("retry", {})}
        usual = Retry()
        return Retry(
            limit=raw.get("limit", usual.limit),
            on=tuple(FailureClass(word) for word in raw["on"]) if "on" in raw else usual.on,
            infra_limit=raw.get("infra_limit", usual.infra_limit),
            backoff=self._seconds(raw["backoff"], "retry", "backoff") if "backoff" in raw else usual.backoff,
        )

    def _timeout(self, kind: NodeKind) -> Timeout:
        if kind is NodeKind.APPROVAL:
            return Timeout()
        raw = {**self.defaults.get("timeout", {}), **self.raw.get("timeout", {})}
        attempt = self._seconds(raw["attempt"], "timeout", "attempt") if "attempt" in raw else DEFAULT_ATTEMPT_TIMEOUT
        node = self._seconds(raw["node"], "timeout", "node") if "node" in raw else None
        return Timeout(attempt=attempt, node=node)

    def _changes(self, kind: NodeKind) -> Changes:
        usual = Changes.KEEP if kind in (NodeKind.AGENT, NodeKind.MERGE) else Changes.DISCARD
        return Changes(self.raw.get("changes", usual))

    def _artefacts(self) -> tuple[ArtefactRule, ...]:
        rules = []
        names: set[str] = set()
        for index, raw in enumerate(self.raw.get("artefacts", ())):
            pure = PurePosixPath(raw["path"])
            if pure.is_absolute() or ".." in pure.parts or "\x00" in raw["path"] or not pure.parts:
                self._find("path", ("artefacts", index, "path"), "A path is relative and stays inside the tree.")
            if raw["name"] in names:
                self._find("duplicate_item", ("artefacts", index, "name"), f"The name {raw['name']!r} stands twice.")
            names.add(raw["name"])
            rules.append(ArtefactRule(path=str(pure), name=raw["name"]))
        return tuple(rules)

    def _agent(self, inside: Path, raw: Mapping[str, Any]) -> Agent:
        given = {**self.defaults.get("agent", {}), **raw}
        if "driver" not in given:
            self._find(
                "driver_missing", inside, "This agent has no driver.", "Name one here or in defaults.agent.driver."
            )
        driver = str(given.get("driver", ""))
        self._playbook((*inside, "playbook"), driver, given.get("playbook"), inside)
        if "result" in given:
            self._result((*inside, "result"), given["result"])
        return Agent(
            driver=driver,
            prompt=given["prompt"],
            model=given.get("model"),
            result=given.get("result"),
            permissions=Permissions(given.get("permissions", Permissions.ASK)),
            playbook=given.get("playbook"),
            skills=tuple(given.get("skills", ())),
            extensions=tuple(given.get("extensions", ())),
            resources=tuple(given.get("resources", ())),
        )

    def _playbook(self, path: Path, driver: str, playbook: Any, agent: Path) -> None:
        if playbook is None:
            if driver == "scripted":
                self._find("playbook_missing", agent, "The scripted driver plays a playbook; this agent has none.")
            return
        _, problems = read_playbook(playbook)
        for problem in problems:
            message = f"{problem.message[0].upper()}{problem.message[1:]}."
            self._find("playbook", (*path, *problem.path), message, f"{problem.hint[:1].upper()}{problem.hint[1:]}")

    def _result(self, path: Path, schema: Mapping[str, Any]) -> None:
        """Look for names that are required but not declared, at every level."""
        declared = schema.get("properties", {})
        for index, name in enumerate(schema.get("required", ())):
            if name not in declared:
                message = f"{name!r} is required but not among the properties."
                self._find("result_schema", (*path, "required", index), message)
        for name, inner in declared.items():
            self._result((*path, "properties", name), inner)
        if isinstance(schema.get("items"), dict):
            self._result((*path, "items"), schema["items"])

    def _command(self, raw: Mapping[str, Any]) -> Command:
        if "result" in raw:
            self._result(("command", "result"), raw["result"])
        if "shell" in raw and "argv" in raw:
            self._find("not_applicable", ("command", "shell"), "'shell' has no meaning beside argv.")
        return Command(
            run=raw.get("run"),
            shell=raw.get("shell", "sh"),
            argv=tuple(raw.get("argv", ())),
            env=dict(raw.get("env", {})),
            result=raw.get("result"),
        )

    def _approval(self, raw: Mapping[str, Any]) -> Approval:
        if ("timeout" in raw) is ("wait_forever" in raw):
            self._find(
                "no_timeout",
                ("approval",),
                "A question either has a timeout or says wait_forever: true.",
                "For instance timeout: 24h with on_timeout: fail.",
            )
        if "on_timeout" in raw and "timeout" not in raw:
            self._find("not_applicable", ("approval", "on_timeout"), "'on_timeout' has no meaning without a timeout.")
        return Approval(
            question=raw["question"],
            options=tuple(raw.get("options", Approval(question="").options)),
            timeout=self._seconds(raw["timeout"], "approval", "timeout") if "timeout" in raw else None,
            on_timeout=OnTimeout(raw.get("on_timeout", OnTimeout.FAIL)),
        )

    def _merge(self, raw: Mapping[str, Any]) -> Merge:
        policy = OnConflict(raw.get("on_conflict", OnConflict.FAIL))
        if (policy is OnConflict.AGENT) is not ("agent" in raw):
            self._find("merge_agent", ("merge",), "'on_conflict: agent' and 'agent' go together.")
        return Merge(
            on_conflict=policy, agent=self._agent(("merge", "agent"), raw["agent"]) if "agent" in raw else None
        )


def _conditions(raw: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(_condition(reference, value) for reference, value in raw.items())


def _condition(reference: str, value: Any) -> Condition:
    if isinstance(value, dict):
        word, operand = next(iter(value.items()))
        return Condition(reference=reference, operator=_OPERATORS[word], value=operand)
    operator = Operator.IN if isinstance(value, list) else Operator.EQ
    return Condition(reference=reference, operator=operator, value=value)


def _rework(raw: Mapping[str, Any]) -> Rework:
    return Rework(node=raw["node"], when=_conditions(raw["when"]), max_rounds=raw["max_rounds"])


def _delivery(raw: Mapping[str, Any]) -> Delivery:
    request = raw.get("change_request")
    if request is None:
        return Delivery()
    usual = ChangeRequest()
    return Delivery(
        change_request=ChangeRequest(
            title=request.get("title", usual.title), body=request.get("body", ""), draft=request.get("draft", False)
        )
    )
