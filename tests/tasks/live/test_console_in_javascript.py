"""The whole way: the page's own module, a real daphne, a supervisor that restarts under it."""

from functools import partial

import pytest

from tests.fixtures.scripted_supervisor import ScriptedSupervisor, served
from tests.fixtures.stream_page import NODE, page
from tests.fixtures.waiting import eventually
from tests.tasks.live.conftest import ORIGIN

pytestmark = [
    pytest.mark.xdist_group("daphne"),
    pytest.mark.skipif(NODE is None, reason="Node is not on this machine"),
]


async def test_a_page_sees_every_event_once_while_the_supervisor_restarts(web, viewer):
    supervisor = ScriptedSupervisor()
    task = web.task()
    url = f"ws://127.0.0.1:{web.port}/ws/v1/tasks/{task['id']}/console"
    headers = {"Origin": ORIGIN, "Cookie": viewer}
    async with page(url, headers=headers) as shown:
        await eventually(lambda: "waiting" in shown.states)
        port = 0
        for turn in range(1, 5):
            async with served(supervisor, token=task["token"], port=port) as server:
                port = server.port
                endpoint = {"host": "127.0.0.1", "port": port, "fingerprint": server.fingerprint}
                web.clerk("change", task=task["id"], endpoint=endpoint)
                web.clerk("nudge", task=task["id"])
                await eventually(lambda: shown.of("snapshot"))
                supervisor.append_many(50)
                await eventually(partial(shown.has_reached, 50 * turn))
        await eventually(lambda: shown.of("task"))
    assert shown.seqs == list(range(1, 201))
    assert len(shown.of("snapshot")) == 1


async def test_a_page_without_a_session_is_told_and_does_not_insist(web):
    task = web.task()
    url = f"ws://127.0.0.1:{web.port}/ws/v1/tasks/{task['id']}/console"
    async with page(url, headers={"Origin": ORIGIN}) as shown:
        await eventually(lambda: "closed" in shown.states)
    assert shown.of("state")[-1] | {"seq": 0} == {
        "what": "state",
        "state": "closed",
        "detail": "signed out",
        "code": 4401,
        "seq": 0,
    }
