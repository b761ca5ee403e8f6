"""``tidy`` on a repository that is tidy already, and an agent of one's own that the registry learns about."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.running_product import ROOT, Product, last_json, product, repository

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

NEAT = '"""Nothing to mend."""\n\nimport os\nimport sys\n\nprint(os.name, sys.version)\n'
TEST = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_true(self):\n        self.assertTrue(True)\n"

# The Agent Client Protocol by hand: what any program that speaks it does, in few words.
AGENT = """
import json, os, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tell(text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    send(method="session/update", params={"sessionId": "s", "update": update})

for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        send(id=asked["id"], result={"protocolVersion": 1})
    elif asked.get("method") == "session/new":
        os.chdir(asked["params"]["cwd"])
        send(id=asked["id"], result={"sessionId": "s"})
    elif asked.get("method") == "session/prompt":
        prompt = asked["params"]["prompt"][0]["text"].splitlines()[0]
        with open("NOTE", "w") as note:
            note.write(os.environ["GREETING"] + ": " + prompt + chr(10))
        tell('Written. {"summary": "A note from an agent"}')
        send(id=asked["id"], result={"stopReason": "end_turn"})
"""
FLOW = """
apiVersion: caisson/v1
kind: Flow
name: own-agent
nodes:
  - key: write
    agent:
      driver: mine
      permissions: reject
      prompt: "{{ task.brief }}"
      result: {type: object, required: [summary], properties: {summary: {type: string}}}
  - key: deliver
    needs: [write]
    delivery: {change_request: {title: "{{ nodes.write.result.summary }}"}}
"""


def git(remote: str | Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(remote), *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-u-"))
    (folder / "flow.yaml").write_text(FLOW)
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def tidied(place: Product, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    remote = repository(
        tmp_path_factory.mktemp("neat"), {"neat.py": NEAT, "tests/__init__.py": "", "tests/test_it.py": TEST}
    )
    done = place.caisson("run", str(remote), "Tidy up", "--flow", "tidy", "--json")
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout)


def test_a_tidy_repository_is_tested_once_and_completes(tidied):
    assert tidied["status"] == "completed"
    assert tidied["nodes"] == {
        "tests-before": "succeeded",
        "tidy": "succeeded",
        "tests-after": "skipped",
        "deliver": "succeeded",
    }


def test_nothing_to_change_is_nothing_to_deliver_and_no_branch_is_pushed(place, tidied):
    assert tidied["commit"] is None
    assert git(tidied["remote"], "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    (delivery,) = place.api(f"/tasks/{tidied['task']}/deliveries")["data"]
    assert (delivery["state"], delivery["node"], delivery["branch"]) == ("nothing_to_deliver", "deliver", "")


def test_an_agent_of_ones_own_is_published_by_a_command_and_works_on_a_task(place, tidied, tmp_path):
    published = subprocess.run(
        [sys.executable, "manage.py", "publish_driver", "mine", "--env", "GREETING=hello", "--", "python3", "agent.py"],
        cwd=ROOT, env=place.environment | {"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert published.stdout.startswith("mine@1 sha256:"), published.stderr
    remote = repository(tmp_path, {"agent.py": AGENT})
    done = place.caisson("run", str(remote), "Say hello", "--flow", str(place.state.parent / "flow.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    result = last_json(done.stdout)
    assert result["change_request"]["title"] == "A note from an agent"
    assert git(remote, "show", f"{result['commit']}:NOTE") == "hello: Say hello\n"
    pinned = place.api(f"/tasks/{result['task']}/frozen")
    assert "mine@1" in str(pinned)
