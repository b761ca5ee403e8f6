import pytest

from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.commands import command_digest, refused
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import Commanded, Prepared
from sandbox_supervisor.graph.requests import MOST_OPEN
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.protocol.flow import Retry, Timeout
from sandbox_supervisor.protocol.messages import Command, CommandVerb
from sandbox_supervisor.protocol.spec import Limits
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.play import Play, agent, approval, command, delivery, flow, joined

OPTIONS = ({"id": "allow", "name": "Allow"}, {"id": "reject", "name": "Reject"})


def asking(**more):
    play = Play(flow(agent("a", **more)))
    play.start("a")
    play.ask("a")
    return play


def answer(play, request="q1", **given):
    return play.order("answer", request=request, answer=given or {"content": "blue"})


def opened(made, key="ok"):
    play = Play(made)
    play.do(Prepared(attempt=play.dispatch(key), base_commit="base"))
    return play


# --- questions and permissions ---------------------------------------------------------------------------------------


def test_a_question_makes_attempt_and_node_wait():
    play = asking()
    play.is_(a="needs_input")
    assert str(play.attempts("a")[0].state) == "needs_input"
    assert play.state.requests["q1"].opened_at == "2030-01-01T00:00:00.000Z"


def test_an_answer_is_stored_with_its_giver_and_handed_to_the_session():
    play = asking()
    change = answer(play, content="blue")
    row = play.state.requests["q1"]
    assert (str(row.state), row.answer, row.actor) == ("answered", {"content": "blue"}, "ada")
    (reply,) = change.intents
    assert (reply.id, reply.data) == ("reply:q1", {"attempt": "a.1.1", "answer": {"content": "blue"}})
    play.is_(a="running")


def test_the_first_answer_wins_and_the_second_learns_who_was_first():
    play = asking()
    answer(play, content="blue")
    with pytest.raises(Refusal) as refusal:
        answer(play, content="red")
    assert refusal.value.code == "already_answered"
    assert refusal.value.facts["actor"] == "ada"
    assert play.state.requests["q1"].answer == {"content": "blue"}


def test_declining_is_an_answer_that_the_session_learns_of():
    play = asking()
    change = answer(play, declined=True)
    assert str(play.state.requests["q1"].state) == "declined"
    assert change.intents[0].data["answer"] == {"declined": True}


@pytest.mark.parametrize("order", [("q1", "q2"), ("q2", "q1")])
def test_two_open_questions_are_answered_by_id_in_any_order(order):
    play = asking()
    play.ask("a", request="q2")
    answer(play, request=order[0], content=order[0])
    play.is_(a="needs_input")
    answer(play, request=order[1], content=order[1])
    play.is_(a="running")
    assert {key: row.answer["content"] for key, row in play.state.requests.items()} == {"q1": "q1", "q2": "q2"}


def test_a_question_is_orphaned_when_its_attempt_ends():
    play = asking()
    play.interrupt("a")
    assert str(play.state.requests["q1"].state) == "orphaned"
    with pytest.raises(Refusal) as refusal:
        answer(play)
    assert refusal.value.code == "request_closed"


def test_asking_the_same_again_changes_nothing():
    play = asking()
    before = play.state
    assert play.ask("a") == Change()
    assert play.state == before


def test_an_option_must_be_one_of_those_offered():
    play = Play(flow(agent("a")))
    play.start("a")
    play.ask("a", options=OPTIONS)
    for given in ({"option": "maybe"}, {"content": "allow"}):
        with pytest.raises(Refusal) as refusal:
            answer(play, **given)
        assert (refusal.value.code, refusal.value.outcome) == ("bad_option", "invalid")
    answer(play, option="allow")
    play.is_(a="running")


@pytest.mark.parametrize("given", [None, "blue", {}, {"option": "a", "content": 1}, {"text": "x"}, ["option"]])
def test_an_answer_of_no_known_form_is_refused(given):
    play = asking()
    with pytest.raises(Refusal) as refusal:
        play.order("answer", request="q1", answer=given)
    assert refusal.value.code == "bad_answer"


@pytest.mark.parametrize("request_id", ["nope", None])
def test_an_answer_to_nothing_is_refused(request_id):
    with pytest.raises(Refusal) as refusal:
        asking().order("answer", request=request_id, answer={"content": 1})
    assert (refusal.value.code, refusal.value.outcome) == ("unknown_request", "unknown")


def test_an_answer_that_an_interrupted_attempt_could_not_use_is_given_again_for_the_same_question():
    play = Play(flow(agent("a")))
    play.start("a")
    play.ask("a", fingerprint="f")
    answer(play, content="blue")
    play.interrupt("a")
    play.tick(10)
    play.start("a")
    change = play.ask("a", request="q2", fingerprint="f")
    play.is_(a="running")
    assert play.state.requests["q2"].answer == {"content": "blue"}
    assert [intent.id for intent in change.intents] == ["reply:q2"]


def test_another_question_is_asked_anew_after_an_interruption():
    play = Play(flow(agent("a")))
    play.start("a")
    play.ask("a", fingerprint="f")
    answer(play, content="blue")
    play.interrupt("a")
    play.tick(10)
    play.start("a")
    play.ask("a", request="q2", fingerprint="g")
    play.is_(a="needs_input")


def test_an_attempt_that_is_being_stopped_opens_no_question():
    play = Play(flow(agent("a")))
    play.start("a")
    play.order("cancel")
    change = play.ask("a")
    assert [str(event.kind) for event in change.events] == ["attempt.late"]
    assert not play.state.requests


def test_waiting_for_a_person_stops_the_attempts_clock():
    play = asking(timeout=Timeout(attempt=100.0))
    play.tick(5000)
    play.is_(a="needs_input")
    answer(play)
    play.tick(99)
    play.is_(a="running")
    play.tick(2)
    assert play.attempts("a")[0].cancel_reason == "timeout"


# --- approvals -------------------------------------------------------------------------------------------------------


def test_an_approval_asks_once_its_base_is_known():
    play = opened(flow(approval("ok")))
    play.is_(ok="needs_input")
    row = play.state.requests["approval:ok.1.1"]
    assert (str(row.kind), row.title, row.options) == (
        "approval",
        "Go?",
        ({"id": "yes", "name": "yes"}, {"id": "no", "name": "no"}),
    )


def test_an_approval_asks_the_rendered_question_when_there_is_one():
    play = Play(flow(approval("ok")))
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="base", question="Deliver 3 files?"))
    assert play.state.requests["approval:ok.1.1"].title == "Deliver 3 files?"
    answer(play, "approval:ok.1.1", option="no")
    assert "Deliver 3 files?" in play.row("ok").failure.message


def test_an_approval_holds_no_slot():
    play = Play(flow(approval("ok"), command("a"), command("b")), limits=Limits(max_parallel_attempts=1))
    assert play.ready() == ["ok", "a"]
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="base"))
    assert play.ready() == ["a"]


def test_the_first_option_succeeds_the_node():
    play = opened(flow(approval("ok"), command("b", "ok")))
    answer(play, "approval:ok.1.1", option="yes")
    play.is_(ok="succeeded", b="ready")
    assert play.row("ok").result == {"option": "yes", "actor": "ada"}
    assert play.row("ok").result_commit == "base"


@pytest.mark.parametrize("given", [{"option": "no"}, {"declined": True}])
def test_any_other_answer_fails_the_node_and_is_never_tried_again(given):
    made = flow(approval("ok", retry=Retry(limit=5, on=tuple(FailureClass))), command("b", "ok"))
    play = opened(made)
    answer(play, "approval:ok.1.1", **given)
    play.is_(ok="failed", b="unreachable")
    assert play.row("ok").failure.code == "approval_refused"
    assert play.graph.state == "failed"


def test_an_approval_that_nobody_answers_fails():
    play = opened(flow(approval("ok", timeout=60.0)))
    play.tick(59)
    play.is_(ok="needs_input")
    play.tick(2)
    play.is_(ok="failed")
    assert play.row("ok").failure.code == "approval_timeout"
    assert str(play.state.requests["approval:ok.1.1"].state) == "expired"


def test_an_approval_may_be_skipped_when_nobody_answers():
    play = opened(flow(approval("ok", timeout=60.0, on_timeout="skip"), delivery("d", "ok", join=joined("all_done"))))
    play.tick(61)
    play.is_(ok="skipped", d="ready")
    assert [source.commit for source in kernel.sources(play.flow, play.state, "d")] == ["base"]


def test_an_approval_without_time_out_waits_for_ever():
    play = opened(flow(approval("ok")))
    play.tick(10_000_000)
    play.is_(ok="needs_input")


def test_an_approvals_expiry_is_told_as_a_moment():
    play = opened(flow(approval("ok", timeout=90.0)))
    assert play.state.requests["approval:ok.1.1"].expires_at == "2030-01-01T00:01:30.000Z"


def test_a_granted_approval_followed_by_a_failure_fails_the_graph():
    play = opened(flow(approval("ok"), command("b", "ok")))
    answer(play, "approval:ok.1.1", option="yes")
    play.fail("b")
    assert play.graph.state == "failed"


# --- messages and command rows ---------------------------------------------------------------------------------------


def test_a_message_goes_to_a_running_session():
    play = Play(flow(agent("a")))
    play.start("a")
    change = play.order("message", attempt="a.1.1", text="Use the cache.")
    (intent,) = change.intents
    assert (intent.id, intent.data) == ("message:c1", {"attempt": "a.1.1", "text": "Use the cache."})


@pytest.mark.parametrize(
    ("attempt", "text", "code"),
    [
        ("a.1.1", " ", "no_text"),
        ("x.1.1", "hi", "unknown_attempt"),
        (None, "hi", "unknown_attempt"),
        ("b.1.1", "hi", "no_session"),
        ("c.1.1", "hi", "no_session"),
    ],
)
def test_a_message_needs_a_text_and_a_session(attempt, text, code):
    play = Play(flow(agent("a"), command("b"), agent("c")))
    play.start("a")
    play.start("b")
    play.run("c")
    with pytest.raises(Refusal) as refusal:
        play.order("message", attempt=attempt, text=text)
    assert refusal.value.code == code


def test_what_is_asked_beyond_the_limit_of_open_questions_is_cancelled_at_once():
    play = Play(flow(agent("a")))
    play.start("a")
    for number in range(MOST_OPEN):
        play.ask("a", request=f"q{number}")
    change = play.ask("a", request="more")
    assert [str(event.kind) for event in change.events] == ["session.note"]
    assert [(intent.subject, intent.data["answer"]) for intent in change.intents] == [("more", {"cancelled": True})]
    assert "more" not in play.state.requests
    play.order("answer", request="q0", answer={"content": 1})
    play.ask("a", request="again")
    assert str(play.state.requests["again"].state) == "open"


def test_a_command_is_recorded_in_the_same_transition():
    play = Play(flow(command("a")))
    change = play.order("pause")
    assert (change.command.id, str(change.command.outcome.code)) == ("c1", "done")
    (done,) = [event for event in change.events if event.kind == "command.done"]
    assert (done.data["id"], done.data["verb"], done.data["actor"]) == ("c1", "pause", "ada")


def test_a_command_without_id_is_refused():
    play = Play(flow(command("a")))
    with pytest.raises(Refusal) as refusal:
        play.do(Commanded(command=Command(id="", verb=CommandVerb.PAUSE, actor="ada")))
    assert refusal.value.code == "no_id"


def test_a_commands_digest_covers_its_arguments_and_not_who_sends_it():
    pause = Command(id="1", verb=CommandVerb.PAUSE, actor="ada")
    assert command_digest(pause) == command_digest(Command(id="2", verb=CommandVerb.PAUSE, actor="bob"))
    assert command_digest(pause) != command_digest(Command(id="1", verb=CommandVerb.RESUME, actor="ada"))


def test_a_refusal_can_be_recorded_under_the_commands_id():
    made = Command(id="1", verb=CommandVerb.RESUME, actor="ada")
    row = refused(made, Refusal("not_paused", "No.", {"state": "running"}))
    assert (row.id, row.digest) == ("1", command_digest(made))
    assert (str(row.outcome.code), row.outcome.reason) == ("refused", "not_paused")
