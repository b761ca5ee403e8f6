import asyncio
import os
import time

import pytest

from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.facts import Dispatched, Fact, GateOpened, Now, Prepared, Succeeded
from sandbox_supervisor.graph.rows import AttemptId, Change, NewEvent
from sandbox_supervisor.log import AlreadyLocked, Log, StorageCorrupt, Superseded
from tests.fixtures.waiting import eventually
from tests.supervisor.graph.play import agent, flow
from tests.supervisor.log.writing import attempt, command, event, events, everything, node


async def test_a_new_log_is_empty_and_has_an_epoch(log):
    assert log.created
    assert log.boot == 1
    assert len(log.epoch) == 32
    assert log.head().seq == 0
    assert log.load() == kernel.EMPTY
    assert log.alive_until is None


async def test_events_are_numbered_without_gaps_over_many_commits(log):
    await asyncio.gather(*(log.commit(events("a", "b"), durable=bool(at % 3)) for at in range(100)))
    found = await log.events(0, 500)
    assert [one.seq for one in found] == list(range(1, 201))
    assert log.head().seq == 200


async def test_a_commit_gives_the_numbers_of_its_events(log):
    await log.commit(events("a"))
    done = await log.commit(events("b", "c"))
    assert (done.first_seq, done.last_seq) == (2, 3)
    assert (await log.commit(Change())).last_seq == 3


async def test_an_empty_change_stores_nothing(log):
    await log.commit(events("a"))
    before = log.head()
    await log.commit(Change())
    assert log.head() == before


async def test_what_is_loaded_is_what_was_committed(log, folder):
    done = await log.commit(everything())
    state = kernel.apply(kernel.EMPTY, done.change)
    assert log.load() == state
    assert await log.read() == (state, 2)
    await log.close()
    reopened = Log.open(folder)
    assert reopened.load() == state
    await reopened.close()


async def test_an_intent_that_is_done_is_open_no_more_and_stays_done(log):
    change = everything()
    await log.commit(change)
    await log.commit(Change(intents_done=("x:1", "unknown")))
    assert list(log.load().intents) == ["go:a.1.1"]
    await log.commit(Change(intents=change.intents))
    assert list(log.load().intents) == ["go:a.1.1"]


async def test_a_cleared_timer_is_gone(log):
    await log.commit(everything())
    await log.commit(Change(timers_cleared=("node:a",)))
    assert not log.load().timers


async def test_a_row_that_has_moved_on_supersedes_the_change(log):
    await log.commit(node("a", 1))
    await log.commit(node("a", 2, rounds=7))
    for rev in (1, 2, 4):
        with pytest.raises(Superseded):
            await log.commit(node("a", rev))
    assert log.load().nodes["a"].rounds == 7
    assert log.head().seq == 2


async def test_a_refused_change_in_a_group_leaves_the_others_alone_and_no_gap(log):
    changes = [node("a", 1), node("a", 1), node("b", 1), events("x"), node("a", 2), node("b", 3)]
    outcomes = await asyncio.gather(*map(log.commit, changes), return_exceptions=True)
    assert [isinstance(outcome, Superseded) for outcome in outcomes] == [False, True, False, False, False, True]
    assert [one.seq for one in await log.events(0, 10)] == [1, 2, 3, 4]
    log.verify(full=True)


async def test_a_value_that_cannot_be_written_is_refused_alone(log):
    outcomes = await asyncio.gather(
        log.commit(events("fine")),
        log.commit(events("\ud800")),
        log.commit(Change(events=(event(data=object()),))),
        log.commit(events("fine too")),
        return_exceptions=True,
    )
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, True, True, False]
    assert log.head().seq == 2
    log.verify(full=True)


async def test_a_commands_row_carries_the_number_of_its_event(log):
    await log.commit(events("a"))
    done = await log.commit(command("c1"))
    row = await log.command("c1")
    assert row == done.change.command
    assert row.outcome.seq == 3


async def test_a_command_id_is_taken_once(log):
    await log.commit(command("c1"))
    with pytest.raises(Superseded):
        await log.commit(command("c1"))
    assert await log.command("c2") is None


async def test_a_refused_command_is_recorded_without_an_event(log):
    await log.commit(command("c1", told=False))
    assert (await log.command("c1")).outcome.seq is None
    assert log.head().seq == 0


async def test_an_attempts_first_event_is_filled_in_once(log):
    await log.commit(events("x"))
    first = await log.commit(attempt("a.1.1"))
    assert first.change.attempts[0].first_seq == 3
    second = await log.commit(attempt("a.1.1", rev=2, first_seq=3))
    assert second.change.attempts[0].first_seq == 3


async def test_events_come_in_pages_of_at_most_five_hundred(log):
    await log.commit(events(*map(str, range(700))))
    first = await log.events(0, 10_000)
    assert (len(first), first[-1].seq) == (500, 500)
    rest = await log.events(500, 500)
    assert [one.data["text"] for one in rest] == [str(at) for at in range(500, 700)]
    assert await log.events(700, 500) == []
    assert await log.events(0, -5) == []


async def test_an_envelope_carries_everything_its_event_said(log):
    told = NewEvent(kind="output", node="a", generation=2, attempt="a.2.1", data={"text": "\x1b[31m☃"})
    await log.commit(Change(events=(told,)))
    (found,) = await log.events(0, 1)
    assert (found.kind, found.node, found.generation, found.attempt, found.data) == (
        "output",
        "a",
        2,
        "a.2.1",
        {"text": "\x1b[31m☃"},
    )
    assert found.epoch == log.epoch
    assert found.at.endswith("Z")


async def test_waiting_ends_as_soon_as_the_head_has_passed(log):
    waiting = [asyncio.create_task(log.wait_past(0, 90)) for _ in range(50)]
    await asyncio.sleep(0)
    await log.commit(events("a"))
    assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [True] * 50


async def test_waiting_for_what_has_happened_returns_at_once(log):
    await log.commit(events("a"))
    assert await log.wait_past(0, 0)
    assert not await log.wait_past(1, 0.01)


async def test_waiting_beyond_the_next_event_goes_on(log):
    waiting = asyncio.create_task(log.wait_past(2, 90))
    for text in "abc":
        await log.commit(events(text))
    assert await asyncio.wait_for(waiting, 60)


async def test_a_wait_that_is_cancelled_disturbs_nobody(log):
    given_up = asyncio.create_task(log.wait_past(0, 90))
    patient = asyncio.create_task(log.wait_past(0, 90))
    await asyncio.sleep(0)
    given_up.cancel()
    await log.commit(events("a"))
    assert await asyncio.wait_for(patient, 60)


async def test_a_second_opener_is_refused(log, folder):
    with pytest.raises(AlreadyLocked):
        Log.open(folder)


async def test_after_closing_the_folder_can_be_opened_again(log, folder):
    await log.close()
    await log.close()
    again = Log.open(folder)
    assert (again.boot, again.epoch) == (2, log.epoch)
    await again.close()


async def test_a_refused_opening_leaves_no_lock_and_no_thread(folder):
    folder.mkdir()
    (folder / "log.sqlite3").write_bytes(b"this is no database" * 1000)
    for _ in range(2):
        with pytest.raises(StorageCorrupt):
            Log.open(folder)


async def test_numbers_go_on_after_reopening(log, folder):
    await log.commit(events("a", "b"))
    head = log.head()
    await log.close()
    again = Log.open(folder)
    assert again.head() == head
    assert (await again.commit(events("c"))).last_seq == 3
    again.verify(full=True)
    await again.close()


async def test_the_moment_of_the_last_commit_is_known_to_the_next_supervisor(log, folder):
    await log.commit(events("a"), durable=False)
    await log.close()
    again = Log.open(folder)
    assert 0 <= _boottime() - again.alive_until < 60
    assert again.same_boot
    await again.close()


def _boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_the_acknowledged_head_must_be_in_the_log(log):
    await log.commit(events("a"))
    head = log.head()
    await log.commit(events("b"))
    await log.acknowledge(head)
    await log.commit(events("c"))
    with pytest.raises(StorageCorrupt, match="which the control plane knows"):
        await log.acknowledge(type(head)(seq=9, chain="00"))
    with pytest.raises(StorageCorrupt):
        await log.commit(events("d"))
    assert [one.data["text"] for one in await log.events(0, 10)] == ["a", "b", "c"]


async def test_an_acknowledged_head_of_another_history_is_noticed(log):
    await log.commit(events("a"))
    with pytest.raises(StorageCorrupt):
        await log.acknowledge(type(log.head())(seq=1, chain="ab" * 32))


async def test_a_graph_runs_through_the_log_and_its_transitions_rebuild_the_rows(log):
    made = flow(agent("a"), agent("b", "a"))
    state = kernel.EMPTY
    now = Now(instant=1.0, at="2030-01-01T00:00:00Z")

    async def commit(change):
        nonlocal state
        state = kernel.apply(state, (await log.commit(change)).change)

    await commit(kernel.initial(made, task="t"))
    facts: list[Fact] = [GateOpened(round=1)]
    for key in "ab":
        one = AttemptId(node=key, generation=1, n=1)
        facts += [Dispatched(node=key), Prepared(attempt=one, base_commit="b")]
        facts.append(Succeeded(attempt=one, result_commit="c", output_digest=key))
    for fact in facts:
        await commit(kernel.step(made, state, fact, now))
    assert state.graph.state == "succeeded"
    assert log.load() == state
    log.verify(full=True)


async def test_files_are_readable_by_their_owner_only(log, folder):
    await log.commit(events("a"))
    log.outputs.open("a.1.1").write("stdout", b"x")
    for entry in os.scandir(folder):
        if entry.name.startswith(("anchor", "ballast", "outputs", "artefacts")):
            assert entry.stat().st_mode & 0o077 == 0, entry.name


async def test_a_burst_shares_its_syncs(log, monkeypatch):
    syncs = []
    real = os.fdatasync

    def counted(file):
        syncs.append(file)
        real(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    await asyncio.gather(*(log.commit(events("x")) for _ in range(300)))
    assert 1 <= len(syncs) < 100


async def test_a_closed_log_answers_nobody_and_keeps_nobody_waiting(folder):
    log = Log.open(folder)
    await log.close()
    with pytest.raises(RuntimeError, match="closed"):
        await log.commit(events("a"))
    with pytest.raises(RuntimeError, match="closed"):
        log.load()


async def test_what_is_queued_at_the_close_is_still_stored(folder):
    log = Log.open(folder)
    waiting = [asyncio.create_task(log.commit(events("x"))) for _ in range(50)]
    await asyncio.sleep(0)
    await log.close()
    assert len(await asyncio.gather(*waiting)) == 50
    again = Log.open(folder)
    assert again.head().seq == 50
    await again.close()


async def test_the_durable_head_is_the_last_synced_event(log):
    await log.commit(events("state"))
    assert log.durable_head() == log.head()
    await log.commit(events("output"), durable=False)
    assert (log.durable_head().seq, log.head().seq) == (1, 2)
    await log.commit(events("state"))
    assert log.durable_head() == log.head()


async def test_an_idle_log_makes_everything_durable_and_empties_its_write_ahead_log(log, folder, monkeypatch):
    monkeypatch.setattr("sandbox_supervisor.log.keeper.IDLE", 0.05)
    await log.commit(events("output"), durable=False)
    await eventually(
        lambda: log.durable_head() == log.head() and (folder / "log.sqlite3-wal").stat().st_size == 0, within=60
    )


async def test_a_big_write_ahead_log_is_emptied_at_its_limit(log, folder, monkeypatch):
    monkeypatch.setattr("sandbox_supervisor.log.keeper.WAL_LIMIT", 1_000_000)
    for _ in range(40):
        await log.commit(events("x" * 100_000), durable=False)
        assert (folder / "log.sqlite3-wal").stat().st_size < 1_300_000


async def test_after_a_failed_sync_nothing_is_written_any_more(log, monkeypatch):
    await log.commit(events("a"))

    def broken(_file):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(StorageCorrupt, match="writing failed"):
        await log.commit(events("b"))
    monkeypatch.undo()
    with pytest.raises(StorageCorrupt, match="writing failed"):
        await log.commit(events("c"))
    assert log.damage is not None
    assert [one.data["text"] for one in await log.events(0, 1)] == ["a"]


async def test_a_commit_that_nobody_waits_for_any_more_disturbs_no_other(log):
    hasty = asyncio.create_task(log.commit(events("hasty")))
    await asyncio.sleep(0)
    hasty.cancel()
    patient = await log.commit(events("patient"))
    told = await log.events(0, 10)
    assert [one.seq for one in told] == list(range(1, patient.last_seq + 1))
    assert told[-1].data == {"text": "patient"}
    log.verify(full=True)
