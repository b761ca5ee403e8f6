from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_supervisor.graph.facts import GateOpened, Restarted
from sandbox_supervisor.graph.joins import Tally
from sandbox_supervisor.graph.joins import judge as judge_join
from sandbox_supervisor.protocol.flow import Retry, Timeout
from sandbox_supervisor.protocol.messages import CancelMode
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.model import Model, N, judge
from tests.supervisor.graph.play import Play, agent, command, flow, joined, replayed, reworks

RULES = ["none_failed_min_one_success", "all_success", "all_done", "any_success", "at_least", "always"]
KEYS = "abcdefg"


@st.composite
def graphs(draw):
    """A random graph, once for the kernel and once for the model."""
    nodes, models = [], []
    above: dict[str, list[str]] = {}
    for at, key in enumerate(KEYS[: draw(st.integers(1, len(KEYS)))]):
        needs = draw(st.lists(st.sampled_from(KEYS[:at]), unique=True, max_size=3)) if at else []
        rule = draw(st.sampled_from(RULES)) if needs else RULES[0]
        least = draw(st.integers(1, max(1, len(needs))))
        rest = draw(st.booleans()) and rule in ("any_success", "at_least")
        retry = draw(st.integers(0, 1))
        above[key] = sorted({*needs, *(other for need in needs for other in above[need])})
        target = draw(st.sampled_from([None, *above[key]]))
        rounds = draw(st.integers(0, 2))
        join = joined(rule, least if rule == "at_least" else None, "cancel_rest" if rest else "let_finish")
        more = {"rework": reworks(target, rounds)} if target else {}
        nodes.append(agent(key, *needs, join=join, retry=Retry(limit=retry, on=(FailureClass.CHECK_FAILED,)), **more))
        models.append(N(key, needs, rule=rule, least=least, rest=rest, retry=retry, rework=target, max_rounds=rounds))
    return flow(*nodes), models


class Both:
    """Kernel and model side by side."""

    def __init__(self, made, nodes):
        self.play, self.model = Play(made, gate=False), Model(nodes)

    def compare(self):
        play, model = self.play, self.model
        assert play.states() == {key: node.state for key, node in model.nodes.items()}
        assert {key: row.generation for key, row in play.state.nodes.items()} == {
            key: node.gen for key, node in model.nodes.items()
        }
        made = Counter(row.id.node for row in play.state.attempts.values())
        assert {key: made[key] for key in model.nodes} == {key: node.made for key, node in model.nodes.items()}
        assert sorted(play.ready()) == sorted(model.ready())
        assert (str(play.graph.state), play.graph.round) == (model.state, model.round)

    def choices(self):
        """Name what may happen next."""
        model = self.model
        found = [("start", key) for key in model.ready()]
        for key in model.running():
            found += [(how, key) for how in ("succeed", "same", "ask", "fail", "interrupt", "stop")]
        found += [("rerun", key) for key in model.nodes if model.may_rerun([key])]
        if model.state not in ("succeeded", "failed", "cancelled", "cancelling"):
            found += [("cancel", mode) for mode in CancelMode]
        if not model.open:
            found += [("gate", "")] * 3
        if any(node.held for node in model.nodes.values()):
            found.append(("wait", ""))
        if model.running():
            found.append(("crash", ""))
        return found

    def happen(self, what, which, number, flag):
        getattr(self, what)(which, number, flag)
        self.compare()

    def start(self, key, _number, _flag):
        self.play.start(key)
        self.model.start(key)

    def succeed(self, key, number, _flag):
        self.play.succeed(key, digest=f"out{number}", result={"verdict": "approve"})
        self.model.finish(key, "succeeded", f"out{number}")

    def same(self, key, _number, _flag):
        self.play.succeed(key, digest="same", result={"verdict": "approve"})
        self.model.finish(key, "succeeded", "same")

    def ask(self, key, _number, _flag):
        self.play.succeed(key, digest="asked", result={"verdict": "changes"})
        self.model.finish(key, "succeeded", "asked", asks=True)

    def fail(self, key, _number, _flag):
        self.play.fail(key)
        self.model.finish(key, "failed")

    def interrupt(self, key, _number, _flag):
        self.play.interrupt(key)
        self.model.finish(key, "interrupted")

    def stop(self, key, _number, _flag):
        if self.model.nodes[key].stopping is None:
            self.play.order("cancel_attempt", attempt=self.play.row(key).active)
            self.model.stop(key)

    def rerun(self, key, _number, flag):
        self.play.order("rerun", nodes=(key,), run_stale=flag)
        self.model.rerun([key], flag)

    def cancel(self, mode, _number, _flag):
        self.play.order("cancel", mode=mode)
        self.model.cancel(str(mode))

    def gate(self, _which, _number, _flag):
        self.play.do(GateOpened(round=self.play.graph.round))
        self.model.gate()

    def wait(self, _which, _number, _flag):
        self.play.tick(1000)
        self.model.wait()

    def crash(self, _which, _number, _flag):
        """The supervisor dies: what it knew is rebuilt from the transitions, then what lived is interrupted."""
        self.play.state = replayed(self.play.changes)
        self.play.do(Restarted(boot=2, alive_until=self.play.instant))
        for key in self.model.running():
            self.play.interrupt(key)
            self.model.finish(key, "interrupted")


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.data())
def test_kernel_and_model_agree_on_every_schedule(made, data):
    both = Both(*made)
    both.compare()
    for number in range(data.draw(st.integers(1, 40))):
        choices = both.choices()
        if not choices:
            break
        what, which = data.draw(st.sampled_from(choices))
        both.happen(what, which, number, data.draw(st.booleans()))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.data())
def test_every_schedule_comes_to_an_end_and_its_transitions_rebuild_the_rows(made, data):
    both = Both(*made)
    for number in range(2000):
        choices = [(what, which) for what, which in both.choices() if what not in ("rerun", "cancel", "crash", "stop")]
        if not choices:
            break
        what, which = data.draw(st.sampled_from(choices))
        both.happen(what, which, number, False)
    assert both.play.graph.state in ("succeeded", "failed", "cancelled")
    assert replayed(both.play.changes) == both.play.state


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.data())
def test_a_rerun_never_touches_an_ancestor_or_a_sibling(made, data):
    both = Both(*made)
    both.happen("gate", "", 0, False)
    for number in range(200):
        choices = [(what, which) for what, which in both.choices() if what in ("start", "succeed", "fail", "wait")]
        if not choices:
            break
        what, which = data.draw(st.sampled_from(choices))
        both.happen(what, which, number, False)
    key = data.draw(st.sampled_from(sorted(both.model.nodes)))
    affected = both.model.below([key]) | {key}
    before = {other: both.play.row(other) for other in both.model.nodes if other not in affected}
    both.happen("rerun", key, 0, data.draw(st.booleans()))
    both.happen("gate", "", 0, False)
    for number in range(200):
        choices = [(what, which) for what, which in both.choices() if what in ("start", "succeed", "fail", "wait")]
        if not choices:
            break
        what, which = data.draw(st.sampled_from(choices))
        both.happen(what, which, 1000 + number, False)
    for other, row in before.items():
        if both.model.nodes[other].rest or any(other in node.needs and node.rest for node in both.model.nodes.values()):
            continue  # cancel_rest is a join's explicit wish about its needs
        assert both.play.row(other) == row


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(RULES), st.integers(1, 4), st.lists(st.sampled_from("sfk?"), max_size=5))
def test_the_joins_arithmetic_agrees_with_trying_everything_out(rule, least, words):
    counts = Counter(words)
    tally = Tally(succeeded=counts["s"], failed=counts["f"], skipped=counts["k"], pending=counts["?"])
    if rule == "at_least" and not words:
        return  # the compiler refuses it
    assert judge_join(joined(rule, least), tally) == judge(rule, least, words)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats(0.1, 30), min_size=1, max_size=6), st.floats(1, 60))
def test_time_is_conserved_over_questions_interruptions_and_restarts(pieces, limit):
    play = Play(flow(command("a", timeout=Timeout(attempt=limit), retry=Retry(infra_limit=0))))
    play.start("a")
    spent = 0.0
    for number, piece in enumerate(pieces):
        if play.attempts("a")[0].cancel_reason:
            break
        play.tick(min(piece, limit - spent))
        spent += min(piece, limit - spent)
        if play.attempts("a")[0].cancel_reason:
            break
        play.ask("a", request=f"q{number}")
        assert abs(play.attempts("a")[0].active_seconds - spent) < 0.01
        play.tick(1000)
        play.order("answer", request=f"q{number}", answer={"content": 1})
        died = play.instant
        play.instant += 777
        play.do(Restarted(boot=2, alive_until=died))
    assert play.attempts("a")[0].active_seconds <= limit + 0.06
