"""Graphs with agents: real driver hosts, real ACP processes, requests answered by a person."""

from sandbox_supervisor.protocol.flow import Agent, Changes, Merge, Node, NodeKind, OnConflict
from sandbox_supervisor.protocol.messages import CommandVerb, OutcomeCode
from sandbox_supervisor.protocol.states import AttemptState, NodeState, RequestState
from tests.supervisor.engine.live import live, send, until
from tests.supervisor.engine.rehearsal import nodes
from tests.supervisor.engine.scenario import BRANCH, Playbook, agent, deliver, keeping
from tests.supervisor.engine.test_commands import ended
from tests.supervisor.engine.test_crashes import check_end

VERDICT = {"type": "object", "required": ["verdict"], "properties": {"verdict": {"enum": ["approve", "changes"]}}}

COLOUR = {"type": "object", "required": ["colour"], "properties": {"colour": {"type": "string"}}}


def test_the_rehearsal_with_agents_ends_as_it_must(sandbox):
    box = sandbox(*nodes(agents=True))
    check_end(box, box.run(), [])


def test_an_agent_that_does_nothing_has_failed(sandbox):
    ran = sandbox([agent("idle", [{"think": "Hm."}])]).run()
    assert ran.said("[empty:")


def test_what_an_agent_says_and_changes_becomes_its_result(sandbox):
    book: Playbook = [
        {"say": "Hello."},
        {"edit": {"path": "value.txt", "content": "2\n"}},
        {"result": {"verdict": "approve"}},
    ]
    box = sandbox([agent("work", book, options={"result": VERDICT}), deliver("work")])
    ran = box.run()
    assert ran.code == 0, ran.lines
    assert box.file(BRANCH, "value.txt") == "2"


async def test_a_question_waits_for_its_answer_and_the_answer_reaches_the_agent(sandbox):
    book: Playbook = [
        {"ask": {"title": "Which?", "schema": COLOUR}},
        {"edit": {"path": "value.txt", "content": "{{ answers[-1] }}\n"}},
    ]
    box = sandbox([agent("ask", book)])
    async with live(box) as running:
        state = await until(running, lambda state: state.nodes["ask"].state is NodeState.NEEDS_INPUT)
        (request,) = state.requests.values()
        assert running.reports.heartbeat(1).attention == 1
        wrong = await send(running, CommandVerb.ANSWER, request=request.id, answer={"content": {"colour": 3}})
        assert wrong.code is OutcomeCode.INVALID
        right = await send(running, CommandVerb.ANSWER, request=request.id, answer={"content": {"colour": "blue"}})
        assert right.code is OutcomeCode.DONE
        state = await until(running, ended)
        assert state.requests[request.id].state is RequestState.ANSWERED
        assert "blue" in box.file("refs/attempts/ask/1/1", "value.txt")


def test_a_conflict_is_handed_to_an_agent_and_its_markers_are_gone(sandbox):
    book: Playbook = [{"edit": {"path": "value.txt", "content": "both\n"}}, {"say": "Settled."}]
    resolver = Merge(on_conflict=OnConflict.AGENT, agent=Agent(driver="scripted", prompt="Settle it.", playbook=book))
    box = sandbox(
        [
            keeping("one", "echo one > value.txt"),
            keeping("two", "echo two > value.txt"),
            Node(key="both", kind=NodeKind.MERGE, needs=("one", "two"), merge=resolver, changes=Changes.KEEP),
            deliver("both"),
        ]
    )
    ran = box.run()
    assert ran.code == 0, ran.lines
    assert box.file(BRANCH, "value.txt") == "both"
    merged = box.git("rev-parse", "refs/attempts/one/1/1", "refs/attempts/two/1/1").split()
    assert all(box.git("merge-base", "--is-ancestor", commit, BRANCH) == "" for commit in merged)


def test_a_resolver_that_leaves_markers_fails_the_check(sandbox):
    resolver = Merge(
        on_conflict=OnConflict.AGENT, agent=Agent(driver="scripted", prompt="Settle it.", playbook=[{"say": "Done."}])
    )
    ran = sandbox(
        [
            keeping("one", "echo one > value.txt"),
            keeping("two", "echo two > value.txt"),
            Node(key="both", kind=NodeKind.MERGE, needs=("one", "two"), merge=resolver, changes=Changes.KEEP),
        ]
    ).run()
    assert ran.said("conflict_unresolved")


def test_a_daemon_that_an_agent_forked_does_not_outlive_its_attempt(sandbox):
    box = sandbox([agent("fork", [{"fork_daemon": {"seconds": 600}}, {"say": "Bye."}])])
    box.start("--stay")
    box.wait_for("graph succeeded")
    assert not [line for line in box.processes() if "runner" not in line and "supervise" not in line]
    assert box.stop() == 0
    assert box.wait_empty() == []


async def test_an_agent_that_ignores_cancel_is_ended_all_the_same(sandbox):
    box = sandbox([agent("stubborn", [{"ignore_cancel": True}, {"say": "Here."}, {"sleep": 600}])])
    async with live(box) as running:
        await until(running, lambda state: any(a.state is AttemptState.RUNNING for a in state.attempts.values()))
        await send(running, CommandVerb.CANCEL)
        state = await until(running, ended)
        assert state.attempts["stubborn.1.1"].state is AttemptState.CANCELLED
    assert box.wait_empty() == []
