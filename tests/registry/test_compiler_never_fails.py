"""Whatever stands in a file, the compiler answers; it never raises and never accepts what the supervisor cannot run."""

import copy
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from registry_app.flows.compiler import CompiledFlow, compile_document
from registry_app.flows.reading import Document, read_document
from registry_app.flows.shape import schema
from sandbox_supervisor.graph.topology import topology
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow

READ = read_document((Path(__file__).parent / "corpus" / "good-every-kind.yaml").read_text(encoding="utf-8"))
assert isinstance(READ, Document), READ
GOOD = READ.data
WORDS = sorted(
    {
        "plan",
        "left",
        "right",
        "both",
        "check",
        "ask",
        "deliver",
        "sweep",
        "nodes.plan.result.files",
        "{{ nodes['plan'] }}",
    }
    | {"1h", "0s", "{{", "scripted", "yes", "-", ""}
    | set(schema()["$defs"]["node"]["properties"])
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 30) | st.floats() | st.sampled_from(WORDS) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLACES = [path for path in places(GOOD) if path]


@st.composite
def damaged(draw):
    """The good flow with one to three places replaced by something else, or taken out."""
    data = copy.deepcopy(GOOD)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        holder = data
        try:
            for step in path[:-1]:
                holder = holder[step]
            if draw(st.booleans()):
                holder[path[-1]] = draw(ANY)
            else:
                del holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    return data


def check(data):
    outcome = compile_document(Document(data, {}))
    if isinstance(outcome, CompiledFlow):
        topology(codec.decode(outcome.canonical, Flow))  # raises for what the supervisor would refuse
    else:
        assert outcome
        assert all(problem.message and problem.code for problem in outcome)


@settings(max_examples=150, deadline=None)
@given(damaged())
def test_a_damaged_flow_is_judged(data):
    check(data)


@settings(max_examples=100, deadline=None)
@given(ANY)
def test_anything_at_all_is_judged(data):
    check(data)
