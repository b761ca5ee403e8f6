"""A session that is told to stop: what the agent hears, and on which rung it ends."""

import asyncio
from pathlib import Path

from tests.supervisor.drivers.agents import agent
from tests.supervisor.runner.stage import ATTEMPT, GIVE_UP, Stage, stage


async def test_a_cancel_is_told_to_the_agent_and_its_open_questions_are_cancelled(patient: Stage):
    body = """
def prompt(message):
    text("asking"); answer = ask(80, "session/request_permission", options=[])
    open("told", "w").write(json.dumps(answer["result"])); done(message, "cancelled")
def cancelled(message): open("cancelled", "w").write("yes")
"""
    await patient.begin(agent(body))
    await patient.first(lambda event: event.kind == "ask")
    await patient.link.stop(ATTEMPT, kill=False)
    assert (await patient.rest()).exit["outcome"] == "cancelled"
    assert (patient.attempt().tree / "told").read_text() == '{"outcome": {"outcome": "cancelled"}}'


async def test_an_agent_that_ends_its_turn_on_cancel_ends_on_the_first_rung(patient: Stage):
    body = "def prompt(message): globals().update(m=message); text('up')\ndef cancelled(message): done(m, 'cancelled')"
    await patient.begin(agent(body))
    await patient.first(lambda event: "up" in str(event.data))
    async with asyncio.timeout(GIVE_UP):  # no second rung was waited for
        await patient.link.stop(ATTEMPT, kill=False)
    ran = await patient.rest()
    assert ran.exit["outcome"] == "cancelled"
    assert ran.told("session.ended") == [{"stop_reason": "cancelled", "exit_code": 0, "signal": None}]


async def test_an_agent_that_does_not_hear_a_cancel_is_ended_by_the_end_of_its_input(tmp_path: Path):
    body = "def prompt(message): text('up')\nimport atexit\natexit.register(lambda: open('gone-in-peace', 'w').close())"
    async with stage(tmp_path, "none", None, "--patience", "0.3", "60", "60") as at:
        await at.begin(agent(body))
        await at.first(lambda event: "up" in str(event.data))
        async with asyncio.timeout(GIVE_UP):
            await at.link.stop(ATTEMPT, kill=False)
        assert (at.attempt().tree / "gone-in-peace").exists()
