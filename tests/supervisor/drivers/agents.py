"""Small ACP agents that do what real ones were seen to do, and worse. Each is the text of a Python program."""

import sys
from typing import Any

from sandbox_supervisor.runner.link import Spawn, SpawnKind
from tests.supervisor.runner.stage import Ran, Stage

_FRAME = """
import json, os, sys, time
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def update(**fields): send(method="session/update", params={"sessionId": "s", "update": fields})
def text(words, **more): update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": words}, **more)
def ask(number, method, **params):
    send(id=number, method=method, params={"sessionId": "s", **params})
    return wait(number)
def wait(number):
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message: return message
        if message.get("method") == "session/cancel": cancelled(message)
def cancelled(message): pass
def initialize(message): send(id=message["id"], result={"protocolVersion": 1, "agentInfo": {"name": "test"}})
def new(message): send(id=message["id"], result={"sessionId": "s"})
def authenticate(message): send(id=message["id"], result={})
def done(message, stop="end_turn", **more): send(id=message["id"], result={"stopReason": stop, **more})
def prompt(message): text("hello"); done(message)
{{BODY}}
for line in sys.stdin:
    message = json.loads(line)
    handler = {
        "initialize": initialize, "authenticate": authenticate, "session/new": new, "session/prompt": prompt,
        "session/cancel": cancelled,
    }
    handler[message["method"]](message) if message.get("method") in handler else None
"""


def agent(body: str, **spawn) -> Spawn:
    """Give the spawn order of an agent whose functions are replaced by those in ``body``."""
    program = _FRAME.replace("{{BODY}}", body)
    argv = (sys.executable, "-I", "-c", program)
    return Spawn(kind=SpawnKind.DRIVER, argv=argv, **{"prompt": "Do the work.", **spawn})


async def lead(at: Stage, body: str, answers=None, **spawn) -> Ran:
    """Play one session with the agent that ``body`` makes, to its end."""
    await at.begin(agent(body, **spawn))
    return await at.rest(answers=answers)


def verdict(ran: Ran) -> tuple[Any, ...]:
    return ran.exit["outcome"], ran.exit["failure_class"], ran.exit["code"]
