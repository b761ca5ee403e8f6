"""What the flow reference and the tutorial print compiles as it stands."""

import re
from pathlib import Path

import pytest

from registry_app.flows.compiler import CompiledFlow, compile_flow
from registry_app.flows.shape import RESERVED_AT_ROOT, RESERVED_IN_NODE, RESERVED_IN_TIMEOUT, schema
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.playbook_reader import VERBS

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "flows.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def flows(page: Path) -> list[str]:
    return [block for block in _BLOCK.findall(page.read_text(encoding="utf-8")) if block.startswith("apiVersion")]


EXAMPLES = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, text in enumerate(flows(page), start=1)
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_printed_flow_compiles(text: str) -> None:
    assert isinstance(compile_flow(text), CompiledFlow), compile_flow(text)


def test_every_node_kind_has_an_example() -> None:
    compiled = [compile_flow(text) for text in flows(DOCS / "reference" / "flows.md")]
    kinds = {node.kind for flow in compiled if isinstance(flow, CompiledFlow) for node in flow.flow.all_nodes()}
    assert kinds == set(NodeKind)


def test_every_verb_of_a_playbook_has_a_line() -> None:
    missing = [verb for verb in VERBS if f"`{verb}`" not in REFERENCE]
    assert not missing


def test_every_key_of_the_schema_is_named() -> None:
    shapes = schema()["$defs"]
    named = {
        key for shape in ("node", "agent", "command", "approval", "merge", "delivery", "retry", "timeout", "rework")
        for key in shapes.get(shape, shapes["node"]["properties"].get(shape, {})).get("properties", {})
    }  # fmt: skip
    missing = [key for key in sorted(named | set(schema()["properties"])) if f"`{key}`" not in REFERENCE]
    dotted = [key for key in missing if f".{key}`" not in REFERENCE]
    assert not dotted


def test_every_reserved_key_is_named() -> None:
    reserved = RESERVED_AT_ROOT | RESERVED_IN_NODE | RESERVED_IN_TIMEOUT
    assert not [key for key in sorted(reserved) if f"`{key}`" not in REFERENCE]
