"""Compile a flow file: every problem at once, or the frozen flow with its digest, worst case and references."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from jsonschema import Draft202012Validator

from registry_app.flows.bounds import WorstCase, check_bounds, worst_case
from registry_app.flows.draft import Draft, DraftNode, gather, raw_nodes, sketch
from registry_app.flows.graph import check_graph
from registry_app.flows.lowering import Lowering
from registry_app.flows.mending import mended, of_the_rest
from registry_app.flows.problems import MAX_PROBLEMS, Finding, Path, Problem, distinct
from registry_app.flows.reading import Document, read_document
from registry_app.flows.references import check_references
from registry_app.flows.shape import check_shape
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Agent, Flow, Node


class CapabilityKind(StrEnum):
    DRIVER = "driver"
    MODEL = "model"
    SKILL = "skill"
    EXTENSION = "extension"
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Something of the registry that a flow wants; ``wanted_by`` names the nodes."""

    kind: CapabilityKind
    name: str
    wanted_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFlow:
    """``canonical`` are the bytes that ``digest`` stands for."""

    flow: Flow
    canonical: bytes
    digest: str
    worst_case: WorstCase
    references: tuple[Reference, ...]


def compile_flow(source: str | bytes) -> CompiledFlow | list[Problem]:
    """Compile the text of a flow file; problems come sorted by line, at most ``MAX_PROBLEMS`` and a word on the rest.

    Pure but for the child process that reads the text. Never raises for what the text holds.
    """
    document = read_document(source)
    return _told(document) if isinstance(document, list) else compile_document(document)


def compile_document(document: Document) -> CompiledFlow | list[Problem]:
    """Like ``compile_flow``, for a document that was read before."""
    outcome = _compile(document.data)
    if isinstance(outcome, CompiledFlow):
        return outcome
    return _told({document.problem(finding) for finding in outcome})


def worst_case_of(flow: Flow) -> WorstCase:
    """Compute the worst case of a flow that was compiled before."""
    return worst_case(Draft({node.key: _known(node, flow) for node in flow.all_nodes()}, flow.inputs))


def references_of(flow: Flow) -> tuple[Reference, ...]:
    """Give everything of the registry that the flow refers to, sorted by kind and name."""
    wanted: dict[tuple[CapabilityKind, str], list[str]] = {}
    for node in flow.all_nodes():
        for kind, name in _wishes(node):
            wanted.setdefault((kind, name), []).append(node.key)
    return tuple(
        Reference(kind=kind, name=name, wanted_by=tuple(dict.fromkeys(keys)))
        for (kind, name), keys in sorted(wanted.items())
    )


def _compile(data: Any) -> CompiledFlow | list[Finding]:
    """Stop at one problem more than are told: each costs a search for what was meant."""
    shape = check_shape(data, MAX_PROBLEMS + 1)
    if not isinstance(data, dict) or len(shape) > MAX_PROBLEMS:
        return shape
    draft, more = _draft(data, shape)
    every = chain(shape, more, check_graph(draft), check_references(draft))
    findings = list(islice(distinct(every), MAX_PROBLEMS + 1))
    if findings:
        return findings
    case = worst_case(draft)
    return list(check_bounds(draft, case)) or _finish(data, draft, case)


def _told(problems: Collection[Problem]) -> list[Problem]:
    found = sorted(problems, key=_place)
    if len(found) <= MAX_PROBLEMS:
        return found
    last = found[MAX_PROBLEMS - 1]
    rest = Problem(
        code="too_many_problems",
        pointer="",
        line=last.line,
        column=last.column,
        message=f"There are more problems than these {MAX_PROBLEMS}.",
        hint="Mend these first.",
    )
    return [*found[:MAX_PROBLEMS], rest]


def _draft(data: Mapping[str, Any], shape: list[Finding]) -> tuple[Draft, list[Finding]]:
    """Lower every node whose shape is right, or is without a part of it; keep what is readable of the others."""
    wrong: dict[Path, list[Path]] = {}
    for finding in shape:
        wrong.setdefault(finding.path[:2], []).append(finding.path[2:])
    defaults_are_right = not any(finding.path[:1] == ("defaults",) for finding in shape)
    defaults = data.get("defaults", {}) if defaults_are_right else {}
    findings: list[Finding] = []
    sketches: list[DraftNode] = []
    for path, raw in raw_nodes(data):
        node = None
        usable = mended(raw, wrong[path]) if path in wrong else raw
        if usable is not None and defaults_are_right:
            lowering = Lowering(path, usable, defaults)
            node = lowering.node()
            findings += of_the_rest(lowering.findings) if path in wrong else lowering.findings
        one = sketch(path, raw, node)
        if one is not None:
            sketches.append(one)
    given = data.get("inputs")
    inputs = given if isinstance(given, dict) else {}
    declared = {name: schema if ("inputs", name) not in wrong else {} for name, schema in inputs.items()}
    draft, duplicates = gather(sketches, declared)
    return draft, [*findings, *duplicates, *_inputs(declared)]


def _inputs(inputs: Mapping[str, Any]) -> Iterator[Finding]:
    """A default must be a value that the input allows."""
    for name, schema in inputs.items():
        if "default" not in schema:
            continue
        for error in Draft202012Validator(schema).iter_errors(schema["default"]):
            message = f"The default does not fit the input's own {error.validator}."
            yield Finding("input_default", ("inputs", name, "default"), message)


def _finish(data: Mapping[str, Any], draft: Draft, case: WorstCase) -> CompiledFlow:
    nodes = [(one.final, one.node) for one in draft.nodes.values() if one.node is not None]
    flow = Flow(
        name=data["name"],
        description=data.get("description", ""),
        inputs=dict(draft.inputs),
        nodes=tuple(node for final, node in nodes if not final),
        finally_=tuple(node for final, node in nodes if final),
    )
    return CompiledFlow(
        flow=flow,
        canonical=codec.canonical(flow),
        digest=codec.digest(flow),
        worst_case=case,
        references=references_of(flow),
    )


def _known(node: Node, flow: Flow) -> DraftNode:
    final = node in flow.finally_
    return DraftNode(key=node.key, path=(), raw={}, needs=node.needs, kind=str(node.kind), final=final, node=node)


def _wishes(node: Node) -> Iterator[tuple[CapabilityKind, str]]:
    agents: list[Agent | None] = [node.agent, node.merge.agent if node.merge else None]
    for agent in agents:
        if agent is None:
            continue
        yield CapabilityKind.DRIVER, agent.driver
        if agent.model is not None:
            yield CapabilityKind.MODEL, agent.model
        yield from ((CapabilityKind.SKILL, name) for name in agent.skills)
        yield from ((CapabilityKind.EXTENSION, name) for name in agent.extensions)
        yield from ((CapabilityKind.RESOURCE, name) for name in agent.resources)


def _place(problem: Problem) -> tuple[int, int, str, str]:
    return problem.line, problem.column, problem.code, problem.message
