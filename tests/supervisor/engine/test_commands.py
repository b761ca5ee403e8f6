"""What a person may ask of a running graph, and what the facade shows, over a real runner."""

import asyncio
import os
import shutil
import signal

import pytest

from sandbox_supervisor.engine.running import Running
from sandbox_supervisor.graph.rows import State
from sandbox_supervisor.protocol.flow import Approval, ArtefactRule, Node, NodeKind, Retry
from sandbox_supervisor.protocol.messages import CancelMode, CommandVerb, OutcomeCode
from sandbox_supervisor.protocol.spec import Limits
from sandbox_supervisor.protocol.states import (
    ATTEMPT_ENDED,
    GRAPH_ENDED,
    AttemptState,
    FailureClass,
    GraphState,
    NodeState,
    RequestState,
)
from sandbox_supervisor.runner.remote import RemoteRunner
from sandbox_supervisor.server.facade import Gone, NotFound
from tests.supervisor.engine.live import appears, connected, live, send, until
from tests.supervisor.engine.scenario import command, keeping

WAIT_FOR_GO = "while ! test -e ../../../go; do sleep 0.05; done"


def ended(state: State) -> bool:
    return state.graph.state in GRAPH_ENDED


def runs(attempt: str):
    return lambda state: attempt in state.attempts and state.attempts[attempt].state is AttemptState.RUNNING


def approval(*needs: str) -> Node:
    return Node(key="sign-off", kind=NodeKind.APPROVAL, needs=needs, approval=Approval(question="Go?", timeout=600))


@pytest.mark.parametrize("mode", [CancelMode.CANCEL, CancelMode.KILL])
async def test_cancel_stops_what_runs_and_is_said_only_when_nothing_is_left(sandbox, mode):
    box = sandbox([command("slow", "trap '' TERM INT; sleep 600 & sleep 600"), command("next", "true", "slow")])
    async with live(box) as running:
        await until(running, runs("slow.1.1"))
        assert (await send(running, CommandVerb.CANCEL, mode=mode)).code is OutcomeCode.DONE
        state = await until(running, ended)
        assert state.graph.state is GraphState.CANCELLED
        assert state.attempts["slow.1.1"].state is AttemptState.CANCELLED
        assert state.nodes["next"].state is NodeState.CANCELLED
        assert not [line for line in box.processes() if "sleep 600" in line.replace("\0", " ")]
    assert box.wait_empty() == []


async def test_cancel_runs_finally_and_kill_does_not(sandbox):
    for mode, expected in ((CancelMode.CANCEL, NodeState.SUCCEEDED), (CancelMode.KILL, NodeState.CANCELLED)):
        box = sandbox([command("slow", "sleep 600")], [command("bye", "true")])
        async with live(box) as running:
            await until(running, runs("slow.1.1"))
            await send(running, CommandVerb.CANCEL, mode=mode)
            assert (await until(running, ended)).nodes["bye"].state is expected


async def test_drain_lets_what_runs_finish_and_starts_nothing_more(sandbox):
    box = sandbox([keeping("work", f"{WAIT_FOR_GO}; echo 2 > value.txt"), command("next", "true", "work")])
    async with live(box) as running:
        await until(running, runs("work.1.1"))
        await send(running, CommandVerb.CANCEL, mode=CancelMode.DRAIN)
        (box.folder / "go").touch()
        state = await until(running, ended)
        assert state.graph.state is GraphState.CANCELLED
        assert state.nodes["work"].state is NodeState.SUCCEEDED
        assert state.nodes["next"].state is NodeState.CANCELLED


async def test_work_of_a_cancelled_attempt_is_kept_on_a_ref_of_its_own(sandbox):
    box = sandbox([keeping("work", "echo half > value.txt; touch ../../../there; sleep 600")])
    async with live(box) as running:
        await until(running, runs("work.1.1"))
        await appears(box.folder / "there")
        await send(running, CommandVerb.CANCEL_ATTEMPT, attempt="work.1.1")
        state = await until(running, lambda state: state.attempts["work.1.1"].state in ATTEMPT_ENDED)
        assert box.file("refs/attempts/work/1/1-wip", "value.txt") == "half"
        assert state.attempts["work.1.1"].wip_commit == box.git("rev-parse", "refs/attempts/work/1/1-wip")


async def test_a_cancelled_attempt_is_not_tried_again(sandbox):
    retry = Retry(limit=3, on=tuple(FailureClass))
    box = sandbox([command("slow", "sleep 600", retry=retry)])
    async with live(box) as running:
        await until(running, runs("slow.1.1"))
        await send(running, CommandVerb.CANCEL_ATTEMPT, attempt="slow.1.1")
        state = await until(running, ended)
        assert list(state.attempts) == ["slow.1.1"]
        assert state.nodes["slow"].state is NodeState.CANCELLED


async def test_a_failed_node_is_rerun_after_the_end_and_its_ancestors_are_not(sandbox):
    box = sandbox(
        [
            keeping("first", "echo 2 > value.txt"),
            command("check", "test -e ../../../fixed", "first"),
            command("last", "true", "check"),
        ]
    )
    async with live(box) as running:
        state = await until(running, ended)
        assert state.graph.state is GraphState.FAILED
        (box.folder / "fixed").touch()
        assert (await send(running, CommandVerb.RERUN, nodes=("check",))).code is OutcomeCode.DONE
        state = await until(running, lambda state: state.graph.round == 2 and ended(state))
        assert state.graph.state is GraphState.SUCCEEDED
        assert sorted(state.attempts) == ["check.1.1", "check.2.1", "first.1.1", "last.1.1"]


async def test_a_manual_rework_starts_from_the_work_it_is_about(sandbox):
    script = 'if test -e one; then echo "seen" > two; else echo 1 > one; fi'
    box = sandbox([keeping("work", script)])
    async with live(box) as running:
        await until(running, ended)
        outcome = await send(running, CommandVerb.REWORK, node="work", feedback="More, please")
        assert outcome.code is OutcomeCode.DONE, outcome
        await until(running, lambda state: state.graph.round == 2 and ended(state))
        assert box.git("ls-tree", "--name-only", "refs/attempts/work/2/1").split() == [
            "README.md", "one", "two", "value.txt",
        ]  # fmt: skip


async def test_a_paused_graph_starts_nothing_until_it_is_resumed(sandbox):
    box = sandbox([command("first", WAIT_FOR_GO), command("second", "true", "first")])
    async with live(box) as running:
        await until(running, runs("first.1.1"))
        await send(running, CommandVerb.PAUSE)
        (box.folder / "go").touch()
        state = await until(running, lambda state: state.nodes["first"].state is NodeState.SUCCEEDED)
        assert "second.1.1" not in state.attempts
        await send(running, CommandVerb.RESUME)
        assert (await until(running, ended)).graph.state is GraphState.SUCCEEDED


async def test_a_command_is_carried_out_once_and_another_body_under_its_id_is_refused(sandbox):
    box = sandbox([approval()])
    async with live(box) as running:
        state = await until(running, lambda state: any(r.state is RequestState.OPEN for r in state.requests.values()))
        (request,) = state.requests
        yes, no = {"option": "yes"}, {"option": "no"}
        first = await send(running, CommandVerb.ANSWER, id="mine", request=request, answer=yes)
        assert first.code is OutcomeCode.DONE
        assert await send(running, CommandVerb.ANSWER, id="mine", request=request, answer=yes) == first
        reused = await send(running, CommandVerb.ANSWER, id="mine", request=request, answer=no)
        assert (reused.code, reused.reason) == (OutcomeCode.REFUSED, "command_id_reused")
        late = await send(running, CommandVerb.ANSWER, request=request, answer=no)
        assert late.code is OutcomeCode.REFUSED
        assert (await until(running, ended)).graph.state is GraphState.SUCCEEDED


async def test_an_answer_that_is_nested_too_deep_is_refused_and_the_question_stays_open(sandbox):
    box = sandbox([approval()])
    deep: object = "yes"
    for _ in range(100):
        deep = [deep]
    async with live(box) as running:
        state = await until(running, lambda state: bool(state.requests))
        (request,) = state.requests
        outcome = await send(running, CommandVerb.ANSWER, request=request, answer={"content": deep})
        assert (outcome.code, outcome.reason) == (OutcomeCode.INVALID, "answer_invalid")
        assert running.engine.state.requests[request].state is RequestState.OPEN


async def test_a_refused_command_stays_refused_under_its_id_whatever_happens_meanwhile(sandbox):
    box = sandbox([approval()])
    async with live(box) as running:
        first = await send(running, CommandVerb.RESUME, id="mine")
        assert (first.code, first.reason) == (OutcomeCode.REFUSED, "not_paused")
        await send(running, CommandVerb.PAUSE)
        assert await send(running, CommandVerb.RESUME, id="mine") == first
        assert running.engine.state.graph.state is GraphState.PAUSED
    assert box.verify().startswith("sound")


async def test_the_gate_holds_everything_back_until_it_is_opened(sandbox):
    box = sandbox([command("one", "true"), approval()])
    async with live(box, gate=False) as running:
        await connected(running)
        assert all(value == "ok" for value in running.facade.readiness().values())
        await asyncio.sleep(0.3)  # nothing may happen: there is nothing to wait for
        assert running.engine.state.attempts == {}


async def test_files_diff_output_and_artefacts_stay_readable_after_the_end(sandbox):
    rules = (ArtefactRule(path="made.txt", name="made"),)
    script = "echo made > made.txt; mkdir sub; echo x > sub/untracked; echo hello; echo bad >&2"
    box = sandbox([keeping("work", script, artefacts=rules)])
    async with live(box) as running:
        state = await until(running, ended)
        facade = running.facade
        assert b"+made" in await facade.attempt_diff("work.1.1")
        names = [entry["name"] for entry in await facade.attempt_files("work.1.1", "")]
        assert {"made.txt", "sub", "value.txt"} <= set(names)
        assert await facade.attempt_file("work.1.1", "sub/untracked", 0, 100) == (b"x\n", 2)
        assert (await facade.attempt_log("work.1.1", "stdout", 0, 100)).data == b"hello\n"
        assert (await facade.attempt_log("work.1.1", "stderr", 0, 100)).data == b"bad\n"
        (artefact,) = state.attempts["work.1.1"].artefacts
        assert await facade.artefact(artefact["digest"], 0, 100) == (b"made\n", 5)
        with pytest.raises(NotFound):
            await facade.attempt_log("work.1.2", "stdout", 0, 10)
        with pytest.raises(NotFound):
            await facade.attempt_file("work.1.1", "../../../spec.json", 0, 10)


async def test_ignored_and_untracked_files_stay_readable_through_reruns_and_restarts_until_the_folder_is_removed(
    sandbox,
):
    made = "echo '*.log' > .gitignore; mkdir build; echo {0} > build/untracked; echo {0} > build/ignored.log"
    box = sandbox([keeping("kept", made.format("kept")), command("thrown", made.format("thrown"))])

    async def readable(running: Running, attempt: str) -> None:
        text = f"{attempt.split('.', maxsplit=1)[0]}\n".encode()
        names = {entry["name"] for entry in await running.facade.attempt_files(attempt, "build")}
        assert names == {"untracked", "ignored.log"}
        for name in names:
            assert await running.facade.attempt_file(attempt, f"build/{name}", 0, 100) == (text, len(text))

    async with live(box) as running:
        await until(running, ended)
        assert "build/ignored.log" not in box.git("ls-tree", "-r", "--name-only", "refs/attempts/kept/1/1")
        await send(running, CommandVerb.RERUN, nodes=("kept", "thrown"))
        await until(running, lambda state: state.graph.round == 2 and ended(state))
        for attempt in running.engine.state.attempts:
            await readable(running, attempt)
    async with live(box) as running:
        await connected(running)
        assert sorted(running.engine.state.attempts) == ["kept.1.1", "kept.2.1", "thrown.1.1", "thrown.2.1"]
        for attempt in running.engine.state.attempts:
            await readable(running, attempt)
        shutil.rmtree(box.folder / "work")
        with pytest.raises(NotFound):
            await running.facade.attempt_file("kept.1.1", "build/ignored.log", 0, 100)


async def test_a_lost_runner_interrupts_what_ran_and_the_next_one_goes_on(sandbox):
    script = (
        f'echo half > value.txt; case "$CAISSON_ATTEMPT" in *.1) touch ../../../there; sleep 600;; esac; {WAIT_FOR_GO}'
    )
    box = sandbox([keeping("work", script)])
    async with live(box) as running:
        await appears(box.folder / "there")
        link = running.runners.link()
        assert isinstance(link, RemoteRunner)
        os.kill(link.hello.pid, signal.SIGKILL)
        await until(running, runs("work.1.2"))
        (box.folder / "go").touch()
        state = await until(running, ended)
        assert state.graph.state is GraphState.SUCCEEDED
        first = state.attempts["work.1.1"]
        assert first.failure is not None
        assert (first.state, first.failure.failure_class) == (AttemptState.INTERRUPTED, FailureClass.INFRA)
        assert box.file("refs/attempts/work/1/1-wip", "value.txt") == "half"
    assert box.wait_empty() == []


async def test_without_a_runner_trees_cannot_be_read_and_the_answer_says_so(sandbox):
    box = sandbox([command("work", "true")])
    async with live(box) as running:
        await until(running, ended)
    async with live(box, runner=False) as running:
        assert running.facade.readiness()["runner"] != "ok"
        with pytest.raises(Gone):
            await running.facade.attempt_files("work.1.1", "")
        assert (await running.facade.snapshot()).graph is GraphState.SUCCEEDED


async def test_the_snapshot_tells_how_parallel_the_graph_was(sandbox):
    both = "touch ../../../$CAISSON_NODE; while ! test -e ../../../one || ! test -e ../../../two; do sleep 0.02; done"
    box = sandbox([command("one", both), command("two", both)])
    async with live(box) as running:
        await until(running, ended)
        snapshot = await running.facade.snapshot()
        assert snapshot.max_parallel == 2
        assert snapshot.first_node_at
        assert snapshot.seq == running.facade.head().seq
        assert [view.winner for view in snapshot.nodes] == ["one.1.1", "two.1.1"]


async def test_at_most_so_many_attempts_run_at_once_as_the_policy_allows(sandbox):
    box = sandbox([command(f"n{i}", "sleep 0.1") for i in range(5)], limits=Limits(max_parallel_attempts=2))
    async with live(box) as running:
        state = await until(running, ended)
        assert state.graph.max_parallel <= 2
