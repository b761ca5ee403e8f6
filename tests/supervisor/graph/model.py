"""A second opinion on graphs: the rules written down plainly, by brute force, sharing no code with the kernel.

Everything is looked at again after everything; a join is judged by trying all ways in which its needs could still end.
"""

from dataclasses import dataclass, field
from itertools import product

OVER = {"succeeded", "failed", "skipped", "unreachable", "cancelled"}
BAD = {"failed", "unreachable", "cancelled"}
TOLERANT = {"all_done", "any_success", "at_least", "always"}


@dataclass
class N:
    key: str
    needs: list[str]
    rule: str = "none_failed_min_one_success"
    least: int = 1
    rest: bool = False  # cancel_rest
    retry: int = 0
    rework: str | None = None
    max_rounds: int = 0
    state: str = "waiting"
    plan: str | None = None  # of a stale node: run | keep | kept
    gen: int = 1
    fired: bool = False
    tries: int = 0  # in this generation
    made: int = 0  # ever
    used: int = 0
    infra: int = 0
    rounds: int = 0
    out: str | None = None
    ate: dict[str, str | None] = field(default_factory=dict)
    stopping: str | None = None
    again: bool = False
    held: bool = False  # in back-off


class Model:
    def __init__(self, nodes):
        self.nodes = {node.key: node for node in nodes}
        self.state = "running"
        self.mode = None
        self.round = 1
        self.open = False
        self.rest()

    # --- what may happen ---

    def ready(self):
        if self.state != "running" or not self.open:
            return []
        return [node.key for node in self.nodes.values() if node.state == "ready" and not node.held]

    def running(self):
        return [node.key for node in self.nodes.values() if node.state == "running"]

    def gate(self):
        if self.state not in ("succeeded", "failed", "cancelled"):
            self.open = True
        self.rest()

    def wait(self):
        for node in self.nodes.values():
            node.held = False

    def start(self, key):
        node = self.nodes[key]
        node.state, node.tries, node.made = "running", node.tries + 1, node.made + 1

    def finish(self, key, how, out=None, asks=False):
        """``how``: succeeded, failed, interrupted."""
        node = self.nodes[key]
        reason, node.stopping = node.stopping, None
        if self.state == "cancelling":
            stopped = reason is not None or how == "interrupted"
            self.over(node, "cancelled" if stopped else how, out)
        elif node.again:
            self.anew(node)
        elif reason:
            self.over(node, "cancelled")
        elif how == "succeeded" and asks and node.rework:
            self.send_back(node)
        elif how == "succeeded":
            self.over(node, "succeeded", out)
        elif how == "interrupted" and node.infra < 2:
            node.state, node.infra, node.held = "ready", node.infra + 1, True
        elif how == "failed" and node.used < node.retry:
            node.state, node.used, node.held = "ready", node.used + 1, True
        else:
            self.over(node, "failed")
        self.rest()

    def stop(self, key):
        self.nodes[key].stopping = self.nodes[key].stopping or "person"

    def cancel(self, mode):
        self.state, self.mode = "cancelling", mode
        for node in self.nodes.values():
            if node.state in ("waiting", "ready"):
                self.over(node, "cancelled")
            elif node.state == "running" and mode != "drain":
                node.stopping = node.stopping or "cancel"
            elif node.plan in ("run", "keep"):
                node.plan = "kept"
        self.rest()

    def may_rerun(self, keys):
        if self.state == "cancelling":
            return False
        below = self.below(keys)
        return all(self.settled(self.nodes[key]) for key in keys) and not any(
            self.nodes[key].state in ("running", "ready") for key in below
        )

    def rerun(self, keys, run_stale):
        if self.state in ("succeeded", "failed", "cancelled"):
            self.state, self.mode, self.open, self.round = "running", None, False, self.round + 1
        for key in keys:
            self.anew(self.nodes[key])
        self.spoil(keys, "run" if run_stale else "keep", None)
        for key in set(keys) | self.below(keys):
            self.nodes[key].rounds = 0
        self.rest()

    # --- how things follow ---

    def below(self, keys):
        found: set[str] = set()
        while True:
            more = {n.key for n in self.nodes.values() if any(need in found or need in keys for need in n.needs)}
            if more <= found:
                return found
            found |= more

    def settled(self, node):
        return node.state in OVER or node.plan == "kept"

    def over(self, node, state, out=None):
        node.state, node.plan, node.again, node.held, node.stopping = state, None, False, False, None
        node.out = out if state == "succeeded" else f"{state}:{sorted(node.ate.items())}"

    def anew(self, node):
        gen = node.gen + 1 if node.fired else node.gen
        fresh = N(key=node.key, needs=node.needs)
        for name in ("fired", "tries", "used", "infra", "out", "ate", "stopping", "again", "held", "plan"):
            setattr(node, name, getattr(fresh, name))
        node.gen, node.state = gen, "waiting"

    def send_back(self, node):
        if node.rounds >= node.max_rounds:
            self.over(node, "failed")
            return
        node.rounds += 1
        target = self.nodes[node.rework]
        self.pull(target)
        self.spoil([target.key], "run", node.key)
        self.anew(node)

    def pull(self, node):
        if node.state == "running":
            node.again, node.stopping = True, node.stopping or "again"
        else:
            self.anew(node)

    def spoil(self, keys, plan, but):
        for key in self.below(keys) - set(keys) - {but}:
            node = self.nodes[key]
            if node.state in ("succeeded", "stale"):
                node.state, node.plan = "stale", plan
            elif node.state != "waiting":
                self.pull(node)

    def rest(self):
        """Look at everything until nothing changes any more."""
        while any([self.look(node) for node in self.nodes.values()]):  # noqa: C419 (every node is looked at)
            pass
        over = all(self.settled(node) for node in self.nodes.values())
        if self.state == "cancelling" and over:
            self.state = "cancelled"
        if self.state == "running" and over and self.open:
            self.state = "failed" if any(self.hurts(node) for node in self.nodes.values()) else "succeeded"

    def hurts(self, node):
        if node.state not in BAD:
            return False
        others = [other for other in self.nodes.values() if node.key in other.needs]
        return not any(other.rule in TOLERANT and other.fired for other in others)

    def look(self, node):
        if self.state != "running":
            return False
        needs = [self.nodes[need] for need in node.needs]
        if node.state == "stale" and node.plan != "kept":
            if not all(self.settled(need) for need in needs):
                return False
            same = all(node.ate.get(need.key, need.out) == need.out for need in needs)
            if same:
                node.state, node.plan = "succeeded", None
            elif node.plan == "run":
                self.anew(node)
            else:
                node.plan = "kept"
            return True
        if node.state != "waiting":
            return False
        if node.rework and node.rounds and not self.settled(self.nodes[node.rework]):
            return False
        return self.join(node, needs)

    def join(self, node, needs):
        verdict = judge(node.rule, node.least, [self.word(need) for need in needs])
        ate = {need.key: need.out for need in needs if self.settled(need)}
        if verdict == "fire":
            node.fired, node.ate, node.state = True, ate, "ready"
            if node.rest:
                self.drop(needs)
        elif verdict == "skip":
            node.fired, node.ate = True, ate
            self.over(node, "skipped")
        elif verdict == "unreachable":
            self.over(node, "unreachable")
        return verdict != "wait"

    def drop(self, needs):
        for need in needs:
            if need.state == "running":
                need.stopping = need.stopping or "rest"
            elif not self.settled(need):
                self.over(need, "cancelled")

    def word(self, node):
        if not self.settled(node):
            return "?"
        return {"succeeded": "s", "stale": "s", "skipped": "k"}.get(node.state, "f")


def judge(rule, least, words):
    """Judge a join by trying out every way in which the open needs could end."""
    ends = [
        [end if word == "?" else word for word, end in zip(words, ends, strict=True)]
        for ends in product("sfk", repeat=len(words))
    ]
    verdicts = {holds(rule, least, end) for end in ends}
    done = "?" not in words
    early = rule in ("any_success", "at_least")
    if verdicts == {True} and (done or early):
        return "fire"
    if verdicts == {False}:
        return "skip" if rule.startswith("none_failed") and done and set(words) == {"k"} else "unreachable"
    return "wait"


def holds(rule, least, words):
    if rule in ("all_done", "always") or not words:
        return True
    if rule == "all_success":
        return set(words) == {"s"}
    if rule == "any_success":
        return "s" in words
    if rule == "at_least":
        return words.count("s") >= least
    return "f" not in words and "s" in words
