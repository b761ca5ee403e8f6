"""Look into Jinja templates without rendering them: which names they use, and whether these can have a value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from registry_app.flows.problems import Finding, Path, guess

ROOTS = ("task", "inputs", "nodes", "feedback")
TASK = ("id", "title", "brief", "creator")
OUTCOMES = ("succeeded", "failed", "skipped", "cancelled", "unreachable")
NODE_FIELDS = ("result", "outcome", "artefacts")
_FORBIDDEN = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
_environment = ImmutableSandboxedEnvironment()
_environment.globals.clear()  # no lipsum, no range: nothing but the roots is reachable


@dataclass(frozen=True, slots=True)
class Visible:
    """What a template of one node may refer to. ``results`` holds the declared schema of each ancestor, or None."""

    results: Mapping[str, Mapping[str, Any] | None]
    uncertain: frozenset[str] = frozenset()  # ancestors whose own shape is wrong: nothing is said about their fields
    inputs: Mapping[str, Any] = field(default_factory=dict)
    others: frozenset[str] = frozenset()  # nodes that exist but come not before this one


@dataclass(frozen=True, slots=True)
class Use:
    """``nodes.plan.result.summary`` as steps; a step is None when the template computes it."""

    steps: tuple[str | int | None, ...]
    line: int


def check_template(text: str, path: Path, visible: Visible) -> Iterator[Finding]:
    """Name every use of something that cannot be there, with its line in the text."""
    try:
        tree = _environment.parse(text)
        unknown = {*find_undeclared_variables(tree), "self"} - set(ROOTS)
    except TemplateSyntaxError as error:
        yield Finding(
            "template_syntax",
            path,
            f"The template cannot be read: {(error.message or '').rstrip('.')}.",
            lines=error.lineno,
        )
        return
    except RecursionError:
        yield Finding("template_syntax", path, "The template is nested too deeply.")
        return
    for node in tree.find_all(_FORBIDDEN):
        yield Finding("template_syntax", path, "A template cannot load or extend others.", lines=node.lineno)
    for name in tree.find_all(nodes.Name):
        if name.name in unknown and name.ctx == "load":
            yield Finding(
                "template_name",
                path,
                f"There is no {name.name!r} in a template.",
                _name_hint(name, visible),
                name.lineno,
            )
        elif name.name in ROOTS and name.ctx != "load":
            yield Finding("template_name", path, f"{name.name!r} cannot be set in a template.", lines=name.lineno)
    for use in _uses(tree):
        yield from _check_use(use, path, visible)


def _name_hint(name: nodes.Name, visible: Visible) -> str:
    hyphenated = [key for key in visible.results if "-" in key and name.name in key.split("-")]
    if hyphenated:
        return f"A key with a hyphen is written nodes['{hyphenated[0]}']."
    return guess(name.name, ROOTS)


def _uses(tree: nodes.Template) -> Iterator[Use]:
    """Give each longest chain of attributes and items that begins at one of the roots."""
    todo: list[nodes.Node] = [tree]
    while todo:
        node = todo.pop()
        steps: list[str | int | None] = []
        inner: nodes.Node = node
        computed: list[nodes.Node] = []
        while isinstance(inner, nodes.Getattr | nodes.Getitem):
            steps.append(_step(inner, computed))
            inner = inner.node
        if isinstance(inner, nodes.Name) and inner.name in ROOTS and inner.ctx == "load":
            yield Use((inner.name, *reversed(steps)), inner.lineno)
            todo += computed
        elif inner is node:
            todo += list(node.iter_child_nodes())
        else:
            todo += [inner, *computed]


def _step(node: nodes.Getattr | nodes.Getitem, computed: list[nodes.Node]) -> str | int | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
        return node.arg.value
    computed.append(node.arg)
    return None


def _check_use(use: Use, path: Path, visible: Visible) -> Iterator[Finding]:
    root, *rest = use.steps
    if root == "task" and rest and rest[0] not in TASK:
        yield Finding("unknown_reference", path, f"A task has no {rest[0]!r}.", guess(rest[0], TASK), use.line)
    if root == "inputs" and rest and rest[0] is not None and rest[0] not in visible.inputs:
        yield Finding(
            "unknown_reference", path, f"There is no input {rest[0]!r}.", guess(rest[0], visible.inputs), use.line
        )
    if root == "nodes":
        yield from _check_node_use(rest, use.line, path, visible)


def _check_node_use(rest: list[str | int | None], line: int, path: Path, visible: Visible) -> Iterator[Finding]:
    if not rest or rest[0] is None:
        yield Finding("template_dynamic", path, "'nodes' must be followed by the key of a node.", lines=line)
        return
    key = rest[0]
    if key not in visible.results:
        yield _unknown_node(str(key), path, visible, line)
    elif len(rest) == 1 or rest[1] not in NODE_FIELDS:
        found = f"A node has no {rest[1]!r} in a template." if len(rest) > 1 else f"Say what of {key!r} is meant."
        yield Finding("unknown_reference", path, found, guess(rest[1] if len(rest) > 1 else "", NODE_FIELDS), line)
    elif rest[1] == "result" and key not in visible.uncertain:
        yield from check_result_path(str(key), rest[2:], path, visible.results[str(key)], line)


def _unknown_node(key: str, path: Path, visible: Visible, line: int) -> Finding:
    if key in visible.others:
        message = f"{key!r} does not come before this node, so that its result is not known here."
        return Finding("not_an_ancestor", path, message, "Add it to needs.", line)
    hyphenated = [known for known in (*visible.results, *visible.others) if known.startswith(f"{key}-")]
    hint = f"A key with a hyphen is written nodes['{hyphenated[0]}']." if hyphenated else guess(key, visible.results)
    return Finding("unknown_reference", path, f"There is no node {key[:80]!r}.", hint, line)


def check_result_path(
    key: str, steps: list[str | int | None], path: Path, schema: Mapping[str, Any] | None, line: int = 0
) -> Iterator[Finding]:
    """Follow the steps through the declared result of node ``key``."""
    if schema is None:
        yield Finding(
            "no_result", path, f"The node {key!r} declares no result.", f"Declare one in the node {key!r}.", line
        )
        return
    for step in steps:
        if step is None or not schema:
            return
        if schema.get("type") == "object" and isinstance(step, str):
            declared = schema.get("properties", {})
            if step not in declared:
                yield Finding(
                    "unknown_field", path, f"The result of {key!r} has no {step!r}.", guess(step, declared), line
                )
                return
            schema = declared[step]
        elif schema.get("type") == "array":
            schema = schema.get("items", {})
        else:
            return
