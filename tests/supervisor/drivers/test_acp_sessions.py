"""Sessions with agents that keep to the protocol, and with those that deviate from it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.runner.link import RunnerRefused, Spawn, SpawnKind
from tests.supervisor.drivers.agents import agent, lead, verdict
from tests.supervisor.runner.stage import ATTEMPT, Stage, running, token

MIB = 1024 * 1024


async def test_a_plain_session_is_told_from_start_to_end(at: Stage):
    ran = await lead(at, "")
    assert verdict(ran) == ("ok", None, None)
    assert ran.told("session.started")[0]["agent"]["name"] == "test"
    assert ran.told("session.prompt") == [{"text": "Do the work."}]
    assert ran.told("session.message") == [{"id": "m1", "role": "agent", "text": "hello"}]
    assert ran.told("session.ended")[0]["stop_reason"] == "end_turn"


async def test_an_agent_written_with_the_public_library_is_understood(at: Stage):
    program = Path(__file__).with_name("library_agent.py")
    await at.begin(Spawn(kind=SpawnKind.DRIVER, argv=(sys.executable, str(program)), prompt="Hi"))
    ran = await at.rest(answers=lambda asked: {"option": asked["options"][0]["id"]})
    assert verdict(ran) == ("ok", None, None)
    assert [event["text"] for event in ran.told("session.message")] == ["You said: Hi", "Allowed: yes"]
    assert ran.told("session.tool")[0]["title"] == "Write a file"


# --- deviations that are tolerated -----------------------------------------------------------------------------------


async def test_updates_and_permissions_for_tool_calls_never_announced(at: Stage):
    body = """
def prompt(message):
    update(sessionUpdate="tool_call_update", toolCallId="ghost", status="completed")
    answer = ask(50, "session/request_permission", toolCall={"toolCallId": "other"},
                 options=[{"optionId": "y", "name": "Yes", "kind": "allow_once"}])
    text(answer["result"]["outcome"]["optionId"]); done(message)
"""
    ran = await lead(at, body, answers=lambda asked: {"option": "y"})
    assert verdict(ran) == ("ok", None, None)
    assert ran.told("session.message")[-1]["text"] == "y"


@pytest.mark.parametrize(
    ("policy", "chosen", "states"),
    [("allow", "once", ["pending", "completed"]), ("deny", "no", ["pending", "failed"])],
)
async def test_a_call_that_only_its_permission_request_tells_of_is_shown_as_one(
    at: Stage, policy: str, chosen: str, states: list[str]
):
    """As Qwen Code 0.15 does: what the call is stands in the request alone, and nothing follows a refusal."""
    body = """
def prompt(message):
    call = {"toolCallId": "c1", "title": "Writing to " + os.getcwd() + "/new.txt", "kind": "edit",
            "content": [{"type": "diff", "path": os.getcwd() + "/new.txt", "oldText": "", "newText": "x"}]}
    answer = ask(50, "session/request_permission", toolCall=call, options=[
        {"optionId": "once", "name": "Allow", "kind": "allow_once"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"}])
    chosen = answer["result"]["outcome"]["optionId"]
    if chosen == "once": update(sessionUpdate="tool_call_update", toolCallId="c1", status="completed")
    text(chosen); done(message)
"""
    ran = await lead(at, body, permissions=policy)
    first, last = ran.told("session.tool")
    assert (first["title"], first["kind"], first["content"][0]["path"]) == ("Writing to new.txt", "edit", "new.txt")
    assert [first["status"], last["status"]] == states
    assert last.keys() == {"id", "status"}
    assert ran.told("session.message")[-1]["text"] == chosen


async def test_a_call_that_was_announced_is_not_told_again_by_its_permission_request(at: Stage):
    body = """
def prompt(message):
    update(sessionUpdate="tool_call", toolCallId="c1", title="Run tests", kind="execute", status="in_progress")
    ask(50, "session/request_permission", toolCall={"toolCallId": "c1", "title": "pytest", "status": "pending"},
        options=[{"optionId": "no", "name": "Reject", "kind": "reject_once"}])
    text("x"); done(message)
"""
    ran = await lead(at, body, permissions="deny")
    assert [event["status"] for event in ran.told("session.tool")] == ["in_progress"]


async def test_messages_before_the_first_prompt_and_banners_before_the_first_answer(at: Stage):
    body = """
print("installing…", flush=True)
def new(message): text("warning: no metadata"); send(id=message["id"], result={"sessionId": "s", "models": {}})
"""
    ran = await lead(at, body)
    assert verdict(ran) == ("ok", None, None)
    assert ran.output() == "installing…\n".encode()


async def test_usage_in_three_places(at: Stage):
    body = """
def prompt(message):
    update(sessionUpdate="usage_update", used=5, size=10, cost={"amount": 0.5, "currency": "USD"})
    text("x"); done(message, usage={"inputTokens": 7, "outputTokens": 2, "totalTokens": 9})
"""
    ran = await lead(at, body)
    totals = [event.data for event in ran.events if event.kind == "usage"][-1]
    assert (totals["input_tokens"], totals["context_used"], totals["cost"]) == (7, 5, 0.5)


async def test_an_agent_that_stays_after_the_end_of_its_input_is_ended(at: Stage):
    mark = token()
    ran = await lead(
        at,
        f"""
def prompt(message):
    import subprocess; subprocess.Popen(["sleep", "{mark}"], start_new_session=True); text("x"); done(message)
    while True: time.sleep(1)
""",
    )
    assert verdict(ran) == ("ok", None, None)
    assert running(mark) == []


@pytest.mark.parametrize(
    ("methods", "env", "tried"),
    [
        pytest.param('[{"id": "browser"}, {"id": "api-key"}]', {}, "['api-key']", id="named-after-a-key"),
        pytest.param(
            '[{"id": "one-api-key", "type": "env_var", "vars": [{"name": "ONE"}]},'
            ' {"id": "other", "type": "env_var", "vars": [{"name": "OTHER"}, {"name": "MORE", "optional": True}]}]',
            {"OTHER": "x"}, "['other']", id="whose-variables-are-set",
        ),
        pytest.param('[{"id": "bad-key"}, {"id": "good-key"}]', {}, "['bad-key', 'good-key']", id="the-next-one"),
    ],
)  # fmt: skip
async def test_an_agent_that_insists_on_authentication_gets_the_method_that_needs_nobody(
    at: Stage, methods: str, env: dict[str, str], tried: str
):
    body = f"""
tried = []
def initialize(message): send(id=message["id"], result={{"protocolVersion": 1, "authMethods": {methods}}})
def new(message):
    if tried: send(id=message["id"], result={{"sessionId": "s"}})
    else: send(id=message["id"], error={{"code": -32000, "message": "Authentication required"}})
def authenticate(message):
    tried.append(message["params"]["methodId"])
    if tried[-1] == "bad-key": send(id=message["id"], error={{"code": -32603, "message": "BAD_KEY is not set"}})
    else: send(id=message["id"], result={{}})
def prompt(message): text(str(tried)); done(message)
"""
    ran = await lead(at, body, env=env)
    assert ran.told("session.message")[-1]["text"] == tried


async def test_an_agent_that_only_a_person_could_sign_in_fails_and_says_what_it_offers(at: Stage):
    body = """
def initialize(message):
    methods = [{"id": "login", "name": "Log in", "description": "Opens a browser"},
               {"id": "tui-key", "name": "Terminal", "type": "terminal"},
               {"id": "env-key", "name": "Use TEST_KEY", "type": "env_var", "vars": [{"name": "TEST_KEY"}]}]
    send(id=message["id"], result={"protocolVersion": 1, "authMethods": methods})
def new(message): send(id=message["id"], error={"code": -32000, "message": "Authentication required"})
def authenticate(message): os._exit(9)
"""
    ran = await lead(at, body)
    assert verdict(ran) == ("failed", "agent_error", "sign_in_needed")
    offer = (
        "wants to be signed in: Authentication required. It offers: Log in: Opens a browser; Terminal; Use TEST_KEY."
    )
    assert offer in ran.exit["message"]


async def test_requests_for_files_and_terminals_are_refused_and_the_session_goes_on(at: Stage):
    body = """
def prompt(message):
    for number, method in ((60, "fs/read_text_file"), (61, "terminal/create"), (62, "x" * 1000)):
        text(str(ask(number, method, path="/etc/passwd")["error"]["code"]) + " ")
    done(message)
"""
    ran = await lead(at, body)
    assert "".join(event["text"] for event in ran.told("session.message")) == "-32601 -32601 -32601 "


async def test_a_megabyte_on_standard_error_holds_up_nothing(at: Stage):
    ran = await lead(at, f"def prompt(message): sys.stderr.write('e' * {MIB}); text('x'); done(message)")
    assert verdict(ran) == ("ok", None, None)
    assert len(ran.output("stderr")) == MIB


async def test_a_long_line_within_the_limit_is_read(at: Stage):
    ran = await lead(at, f"def prompt(message): text('x' * {2 * MIB}); done(message)")
    assert sum(len(event["text"]) for event in ran.told("session.message")) == 2 * MIB


async def test_a_tool_call_with_more_text_than_an_event_holds_is_shown_shortened(at: Stage):
    body = """
def prompt(message):
    diff = {"type": "diff", "path": "p", "oldText": "a" * 9000, "newText": "\\x01" * 9000}
    update(sessionUpdate="tool_call", toolCallId="1", title="Edit", content=[diff] * 20); text("x"); done(message)
"""
    ran = await lead(at, body)
    assert verdict(ran) == ("ok", None, None)
    (shown,) = ran.told("session.tool")
    assert len(shown["content"]) == 20
    assert all("left out" in diff["new"] for diff in shown["content"])


# --- questions -------------------------------------------------------------------------------------------------------

FORM = """
def prompt(message):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}
    text(json.dumps(ask(70, "elicitation/create", mode="form", message="Who?", requestedSchema=schema)["result"]))
    done(message)
"""


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"content": {"name": "Ada", "n": 3}}, '{"action": "accept", "content": {"name": "Ada", "n": 3}}'),
        ({"declined": True}, '{"action": "decline"}'),
        ({"cancelled": True}, '{"action": "cancel"}'),
    ],
)
async def test_a_form_is_asked_and_its_answer_told(at: Stage, answer: dict[str, Any], told: str):
    ran = await lead(at, FORM, answers=lambda asked: answer)
    assert ran.asked()[0]["title"] == "Who?"
    assert ran.told("session.message")[-1]["text"] == told


@pytest.mark.parametrize(("policy", "chosen"), [("allow", "y"), ("reject", "n")])
async def test_a_permission_that_the_flow_has_decided_asks_nobody(at: Stage, policy: str, chosen: str):
    body = """
def prompt(message):
    options = [{"optionId": "y", "name": "Y", "kind": "allow_once"},
               {"optionId": "n", "name": "N", "kind": "reject_once"}]
    answer = ask(50, "session/request_permission", toolCall={"toolCallId": "1", "title": "Delete"}, options=options)
    text(answer["result"]["outcome"]["optionId"]); done(message)
"""
    ran = await lead(at, body, permissions=policy)
    assert ran.asked() == []
    assert ran.told("session.message")[-1]["text"] == chosen


async def test_an_answer_to_a_question_that_was_never_asked_is_ignored(at: Stage):
    await at.begin(agent(FORM))
    await at.first(lambda event: event.kind == "ask")
    await at.link.reply(ATTEMPT, "r99", {"content": {"name": "evil"}})
    await at.link.reply(ATTEMPT, "r1", {"content": {"name": "good"}})
    ran = await at.rest()
    assert "good" in ran.told("session.message")[-1]["text"]


async def test_a_person_can_add_a_prompt_while_the_agent_works(at: Stage):
    await at.begin(agent("def prompt(message): ask(1, 'elicitation/create', message='wait', requestedSchema={}); "
                         "text(message['params']['prompt'][0]['text'] + '!'); done(message)"))  # fmt: skip
    await at.first(lambda event: event.kind == "ask")
    await at.link.message(ATTEMPT, "And one more thing.")
    await at.link.reply(ATTEMPT, "r1", {"content": {}})
    ran = await at.rest(answers=lambda asked: {"content": {}})
    assert [event["text"] for event in ran.told("session.prompt")] == ["And one more thing."]
    assert ran.told("session.message")[-1]["text"] == "And one more thing.!"


async def test_a_session_that_has_ended_refuses_a_prompt(at: Stage):
    await lead(at, "")
    with pytest.raises(RunnerRefused) as refused:
        await at.link.message(ATTEMPT, "too late")
    assert refused.value.code == "no_session"


# --- results ---------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["verdict"], "properties": {"verdict": {"enum": ["good", "bad"]}}}


async def test_a_result_that_fits_is_taken_from_the_last_message(at: Stage):
    ran = await lead(
        at, """def prompt(message): text('I think {"verdict": "good"}'); done(message)""", result_schema=SCHEMA
    )
    assert ran.exit["result"] == {"verdict": "good"}


async def test_a_result_is_taken_from_the_result_file(at: Stage):
    body = """
def prompt(message):
    open(os.environ["CAISSON_RESULT"], "w").write('{"verdict": "bad"}'); text("see the file"); done(message)
"""
    assert (await lead(at, body, result_schema=SCHEMA)).exit["result"] == {"verdict": "bad"}


@pytest.mark.parametrize("make", ["os.mkdir(p)", "os.mkfifo(p); globals().update(k=os.open(p, os.O_RDWR))"])
async def test_a_result_file_that_is_no_file_is_no_result_and_no_accident(at: Stage, make: str):
    body = f"def prompt(message): p = os.environ['CAISSON_RESULT']; {make}; text('x'); done(message)"
    ran = await lead(at, body)
    assert (verdict(ran), ran.exit["result"]) == (("ok", None, None), None)


async def test_a_result_that_does_not_fit_is_asked_for_once_more(at: Stage):
    body = """
turns = []
def prompt(message):
    turns.append(message); text('{"verdict": "%s"}' % ("maybe" if len(turns) == 1 else "good")); done(message)
"""
    ran = await lead(at, body, result_schema=SCHEMA)
    assert ran.exit["result"] == {"verdict": "good"}
    assert "'maybe'" in ran.told("session.prompt")[1]["text"]


async def test_a_result_that_does_not_fit_twice_is_a_failed_check(at: Stage):
    ran = await lead(at, "", result_schema=SCHEMA)
    assert verdict(ran) == ("failed", "check_failed", "result_invalid")
    assert len(ran.told("session.prompt")) == 2


async def test_without_a_schema_the_last_json_object_is_passed_on(at: Stage):
    assert (await lead(at, """def prompt(message): text('{"a": 1}'); done(message)""")).exit["result"] == {"a": 1}
