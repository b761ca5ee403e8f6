"""Check every reference to something that another node or the person gives: conditions, rework, templates."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from registry_app.flows.draft import Draft, DraftNode
from registry_app.flows.problems import Finding, Path, brief, guess
from registry_app.flows.templates import OUTCOMES, Visible, check_result_path, check_template, read_template
from sandbox_supervisor.protocol.flow import Agent, Condition, Node, Operator


def check_references(draft: Draft) -> Iterator[Finding]:
    """Name every reference that leads nowhere, and every condition that can never hold."""
    read = cache(read_template)  # aliases let one long text stand in many places
    for one in draft.nodes.values():
        if one.node is None:
            continue
        visible = _visible(draft, one)
        for path, text in _templates(one.node):
            yield from check_template(read(text), (*one.path, *path), visible)
        for condition in one.node.when:
            yield from _condition(condition, (*one.path, "when", condition.reference), visible)
        if one.node.rework is not None:
            yield from _rework(one)


def declared_result(node: Node) -> Mapping[str, Any] | None:
    """Give the JSON Schema of a node's result; None when it declares none."""
    if node.agent is not None:
        return node.agent.result
    if node.command is not None:
        return node.command.result
    return node.merge.agent.result if node.merge is not None and node.merge.agent is not None else None


def _visible(draft: Draft, one: DraftNode) -> Visible:
    """On a cycle every other node counts as coming before: the cycle itself is what is wrong there."""
    known = draft.ancestors[one.key] if one.key not in draft.in_cycles else frozenset(draft.nodes) - {one.key}
    before = {key: draft.nodes[key].node for key in draft.nodes if key in known}
    return Visible(
        results={key: declared_result(node) if node is not None else None for key, node in before.items()},
        uncertain=frozenset(key for key, node in before.items() if node is None),
        inputs=draft.inputs,
        others=frozenset(draft.nodes) - set(before),
    )


def _templates(node: Node) -> Iterator[tuple[Path, str]]:
    if node.agent is not None:
        yield from _prompt(("agent",), node.agent)
    if node.merge is not None and node.merge.agent is not None:
        yield from _prompt(("merge", "agent"), node.merge.agent)
    if node.command is not None:
        if node.command.run is not None:
            yield ("command", "run"), node.command.run
        yield from ((("command", "argv", index), text) for index, text in enumerate(node.command.argv))
        yield from ((("command", "env", name), text) for name, text in node.command.env.items())
    if node.approval is not None:
        yield ("approval", "question"), node.approval.question
    if node.delivery is not None and node.delivery.change_request is not None:
        yield ("delivery", "change_request", "title"), node.delivery.change_request.title
        yield ("delivery", "change_request", "body"), node.delivery.change_request.body


def _prompt(path: Path, agent: Agent) -> Iterator[tuple[Path, str]]:
    yield (*path, "prompt"), agent.prompt


def _rework(one: DraftNode) -> Iterator[Finding]:
    """A node's rework looks at its own result only."""
    if one.node is None or one.node.rework is None:
        return
    schema = declared_result(one.node)
    for condition in one.node.rework.when:
        path: Path = (*one.path, "rework", "when", condition.reference)
        head, *rest = condition.reference.split(".")
        if head != "result" or not rest:
            message = f"A rework looks at this node's own result, not at {brief(condition.reference)}."
            yield Finding("unknown_reference", path, message, "Write for instance result.verdict.")
        else:
            yield from check_result_path(one.key, [*rest], path, schema)
            yield from _comparison(condition, _type_at(schema, rest), path)


def _condition(condition: Condition, path: Path, visible: Visible) -> Iterator[Finding]:
    head, _, rest = condition.reference.partition(".")
    steps = rest.split(".") if rest else []
    if head == "inputs":
        if len(steps) != 1 or steps[0] not in visible.inputs:
            yield Finding("unknown_reference", path, f"There is no input {brief(rest)}.", guess(rest, visible.inputs))
        else:
            yield from _comparison(condition, visible.inputs[steps[0]], path)
    elif head in visible.results:
        yield from _about_node(condition, head, steps, path, visible)
    elif head in visible.others:
        message = f"{head!r} does not come before this node, so that nothing is known about it here."
        yield Finding("not_an_ancestor", path, message, f"Add {brief(head)} to needs.")
    else:
        message = f"{brief(condition.reference)} leads nowhere."
        hint = (
            guess(head, [*visible.results, "inputs"]) or "Write <node>.result.<field>, <node>.outcome or inputs.<name>."
        )
        yield Finding("unknown_reference", path, message, hint)


def _about_node(condition: Condition, key: str, steps: list[str], path: Path, visible: Visible) -> Iterator[Finding]:
    if steps == ["outcome"]:
        yield from _comparison(condition, {"type": "string", "enum": list(OUTCOMES)}, path)
    elif len(steps) < 2 or steps[0] != "result":
        message = f"A condition looks at {key}.outcome or {key}.result.<field>."
        hint = guess(steps[0], ("outcome", "result")) if steps and steps[0] != "result" else ""
        yield Finding("unknown_reference", path, message, hint)
    elif key not in visible.uncertain:
        yield from check_result_path(key, [*steps[1:]], path, visible.results[key])
        yield from _comparison(condition, _type_at(visible.results[key], steps[1:]), path)


def _type_at(schema: Mapping[str, Any] | None, steps: list[str]) -> Mapping[str, Any]:
    """Give the declared schema of a field; empty when nothing is declared."""
    for step in steps:
        schema = (schema or {}).get("properties", {}).get(step)
    return schema or {}


_NUMERIC = frozenset({"integer", "number"})


def _comparison(condition: Condition, schema: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Compare what a condition asks for with what the field can be."""
    declared = schema.get("type")
    if condition.operator in (Operator.GT, Operator.LT):
        if isinstance(declared, str) and declared not in _NUMERIC:
            yield Finding("condition_type", path, f"This is declared as {declared}; gt and lt compare numbers.")
        return
    possible = schema.get("enum")
    if condition.operator is Operator.EXISTS or not possible:
        return
    wanted = condition.value if isinstance(condition.value, list) else [condition.value]
    for value in wanted:
        if value not in possible:
            message = f"This is never {brief(value)}."
            yield Finding("condition_never_holds", path, message, guess(value, [str(one) for one in possible]))
