"""What a supervisor loads: heavy libraries live in other processes or come with their first use."""

import json
import subprocess
import sys

import pytest

from tests.supervisor.engine.live import connected, live
from tests.supervisor.engine.scenario import ROOT, command

FORBIDDEN = [
    "acp",
    "mcp",
    "pydantic",
    "django",
    "jsonschema",
    "cryptography",
    "jinja2",
    "httpx",
    "yaml",
    "anyio",
    "trio",
]
IMPORT = "import json, sys; from sandbox_supervisor import supervise; {more}; print(json.dumps(sorted(sys.modules)))"


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        pytest.param("pass", set(), id="supervise"),
        pytest.param("from sandbox_supervisor import standalone", set(), id="standalone"),
        pytest.param("from sandbox_supervisor.server import serve", {"anyio"}, id="server"),
    ],
)
def test_importing_the_supervisor_loads_nothing_heavy(more, allowed):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(more=more)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded & set(FORBIDDEN) <= allowed


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        pytest.param("runner.main", {"sandbox_supervisor.graph.rows", "sandbox_supervisor.protocol.flow"}, id="runner"),
        pytest.param("materialise.command", {"asyncio", "ssl"}, id="materialise"),
        pytest.param("attempts.confined", {"asyncio", "ssl"}, id="template"),
    ],
)
def test_what_a_first_node_waits_for_loads_no_more_than_it_uses(module, spared):
    loading = f"import sys; import sandbox_supervisor.{module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", loading], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert not spared & set(done.stdout.split())


async def test_a_rendered_template_and_a_checked_schema_load_nothing_into_the_supervisor(sandbox):
    """Rendering and checking are other processes; here they are used and this interpreter is asked what it knows."""
    box = sandbox([command("one", "echo '{{ task.title }}'; echo '{}' > $CAISSON_RESULT", options={"result": {}})])
    before = set(sys.modules)
    async with live(box) as running:
        await connected(running)
        await running.engine.until(lambda state: state.nodes["one"].state == "succeeded")
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert not new & {"jinja2", "jsonschema"}
