"""Look into Jinja templates without rendering them: which names they use, and whether these can have a value."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from jinja2 import TemplateSyntaxError, nodes
from jinja2.compiler import Frame
from jinja2.meta import TrackingCodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment

from registry_app.flows.problems import Finding, Path, brief, guess, plain

ROOTS = ("task", "inputs", "nodes", "feedback")
TASK = ("id", "title", "brief", "creator")
OUTCOMES = ("succeeded", "failed", "skipped", "cancelled", "unreachable")
NODE_FIELDS = ("result", "outcome", "artefacts")
_LOADS = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
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


@dataclass(frozen=True, slots=True)
class Template:
    """What one text holds, whichever node it stands in: what is wrong with it as such, names and uses."""

    faults: tuple[tuple[str, str, int], ...] = ()  # message, hint, line
    names: tuple[tuple[str, int], ...] = ()  # that are neither roots nor set in the template
    overwritten: tuple[tuple[str, int], ...] = ()  # roots that it sets
    uses: tuple[Use, ...] = ()


class _Names(TrackingCodeGenerator):
    """Jinja's own search for undeclared names, which would compute what is constant: ``9**(9**9)`` for instance."""

    def __init__(self) -> None:
        super().__init__(_environment)
        self.optimizer = None

    def _output_child_to_const(self, *_: object) -> NoReturn:
        raise nodes.Impossible

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:  # noqa: N802
        """Leave it; it is a fault of the template anyway."""


def read_template(text: str) -> Template:
    """Take a template apart; nothing in it is computed. Never raises for what the text holds."""
    try:
        return _read(_environment.parse(text))
    except TemplateSyntaxError as error:
        told = plain(error.message or "", 200).rstrip(".")
        return Template(((f"The template cannot be read: {told}.", "", error.lineno),))
    except RecursionError:
        return Template((("The template is nested too deeply.", "", 1),))
    except ValueError:  # a number of thousands of digits
        return Template((("The template holds a number that is too large.", "", 1),))


def check_template(template: Template, path: Path, visible: Visible) -> Iterator[Finding]:
    """Name every use of something that cannot be there, with its line in the text."""
    for message, hint, line in template.faults:
        yield Finding("template_syntax", path, message, hint, line)
    for name, line in template.names:
        yield Finding(
            "template_name", path, f"There is no {brief(name)} in a template.", _name_hint(name, visible), line
        )
    for name, line in template.overwritten:
        yield Finding("template_name", path, f"{name!r} cannot be set in a template.", lines=line)
    for use in template.uses:
        yield from _check_use(use, path, visible)


def _read(tree: nodes.Template) -> Template:
    faults = tuple(_faults(tree))
    search = _Names()
    with suppress(TemplateSyntaxError) if faults else nullcontext():  # an unknown filter, told by us before
        search.visit(tree)
    unknown = {*search.undeclared_identifiers, "self"} - set(ROOTS)
    names = [(name.name, name.ctx, name.lineno) for name in tree.find_all(nodes.Name)]
    return Template(
        faults=faults,
        names=tuple(dict.fromkeys((name, line) for name, ctx, line in names if name in unknown and ctx == "load")),
        overwritten=tuple(dict.fromkeys((name, line) for name, ctx, line in names if name in ROOTS and ctx != "load")),
        uses=tuple(dict.fromkeys(_uses(tree))),
    )


def _faults(tree: nodes.Template) -> Iterator[tuple[str, str, int]]:
    for node in tree.find_all(_LOADS):
        yield "A template cannot load or extend others.", "", node.lineno
    for node in tree.find_all(nodes.EvalContextModifier):
        yield "A template is plain text: there is nothing to escape.", "Take autoescape away.", node.lineno
    for call in tree.find_all(nodes.Filter):
        if call.name not in _environment.filters:
            yield f"There is no filter {brief(call.name)}.", guess(call.name, _environment.filters), call.lineno
    for test in tree.find_all(nodes.Test):
        if test.name not in _environment.tests:
            yield f"There is no test {brief(test.name)}.", guess(test.name, _environment.tests), test.lineno


def _name_hint(name: str, visible: Visible) -> str:
    hyphenated = [key for key in visible.results if "-" in key and name in key.split("-")]
    if hyphenated:
        return f"A key with a hyphen is written nodes['{hyphenated[0]}']."
    if name in visible.results:
        return f"A node is reached as nodes.{name}."
    if name in visible.inputs:
        return f"An input is reached as inputs.{name}."
    return guess(name, ROOTS)


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
        yield Finding("unknown_reference", path, f"A task has no {brief(rest[0])}.", guess(rest[0], TASK), use.line)
    if root == "inputs" and rest and rest[0] is not None and rest[0] not in visible.inputs:
        yield Finding(
            "unknown_reference", path, f"There is no input {brief(rest[0])}.", guess(rest[0], visible.inputs), use.line
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
        found = f"A node has no {brief(rest[1])} in a template." if len(rest) > 1 else f"Say what of {key!r} is meant."
        yield Finding("unknown_reference", path, found, _field_hint(key, rest[1:], visible), line)
    elif rest[1] == "result" and key not in visible.uncertain:
        yield from check_result_path(str(key), rest[2:], path, visible.results[str(key)], line)


def _field_hint(key: str | int, rest: list[str | int | None], visible: Visible) -> str:
    declared = (visible.results.get(str(key)) or {}).get("properties", {})
    if rest and rest[0] in declared:
        return f"Its result has one: write .result.{rest[0]}."
    return guess(rest[0] if rest else "", NODE_FIELDS)


def _unknown_node(key: str, path: Path, visible: Visible, line: int) -> Finding:
    if key in visible.others:
        message = f"{key!r} does not come before this node, so that its result is not known here."
        return Finding("not_an_ancestor", path, message, f"Add {brief(key)} to needs.", line)
    hyphenated = [known for known in (*visible.results, *visible.others) if known.startswith(f"{key}-")]
    hint = f"A key with a hyphen is written nodes['{hyphenated[0]}']." if hyphenated else guess(key, visible.results)
    return Finding("unknown_reference", path, f"There is no node {brief(key)}.", hint, line)


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
                    "unknown_field", path, f"The result of {key!r} has no {brief(step)}.", guess(step, declared), line
                )
                return
            schema = declared[step]
        elif schema.get("type") == "array":
            schema = schema.get("items", {})
        else:
            return
