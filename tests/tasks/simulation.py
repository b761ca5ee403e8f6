"""A whole life of one task against a virtual provider, network, clock, two workers and a person.

The kernel and the rules of writing are the real ones; only rows, provider and supervisor are in memory. Everything
random comes from one seed. After every step the invariants are checked; ``trace`` tells how it came to it.
"""

from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sandbox_providers.contract import Endpoint, Observation, State
from sandbox_supervisor.protocol.messages import Desired, Head, Heartbeat
from sandbox_supervisor.protocol.states import GRAPH_ENDED, GraphState
from tasks_app.kernel import NOT_NEWS, Creation, Proof, Seen, Want, admit, decide, desired
from tasks_app.models import Task, TaskContact
from tasks_app.services.contact import PATIENCE
from tasks_app.services.facts import facts_of, limits_of
from tasks_app.services.moves import Moves, frees_capacity, move_presence, moves_of
from tasks_app.services.provisioning import may_still_appear
from tasks_app.states import LIVE, TERMINAL, Presence, SecretState, Status
from tests.tasks.simulation_rules import START, Box, Pending, check, check_the_word, is_stale

SPECIFICATION = "sha256:spec"
ENDPOINT = Endpoint(host="h", port=1, fingerprint="f")
LIES = 2  # stale reads in a row that a provider may give; the third one is the truth


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = START
        self.faults = True
        self.safe_mode = False
        self.trace: list[str] = []
        self.task = Task(
            id="tsk_1",
            workspace_id="w",
            created_at=START,
            specification_digest=SPECIFICATION,
            max_retention=timedelta(hours=2),
            connection_grace=timedelta(minutes=1),
            start_deadline=timedelta(minutes=5),
            rerun_patience=timedelta(minutes=10),
            archive_patience=timedelta(minutes=10),
        )
        self.contact = TaskContact(task_id="tsk_1")
        self.box: Box | None = None
        self.created = 0
        self.late_at: datetime | None = None  # when a call of create without an answer will have its effect
        self.destroyed: list[tuple[str, datetime]] = []
        self.archived: set[int] = set()
        self.workers: dict[int, Pending | None] = {0: None, 1: None}
        self.network: list[Heartbeat] = []
        self.lies = 0
        self.released = 0
        self.ticked_at = START
        self.unbroken_since = START
        self.heard_at = START
        self.words: list[tuple[Status, int]] = []
        self.deadline: datetime | None = None

    # --- writing, as lifecycle.write does it -------------------------------------------------------------------------

    def read(self) -> tuple[Task, TaskContact]:
        return copy(self.task), copy(self.contact)

    def write(self, pending: Pending) -> bool:
        """Compare-and-set; the history of what mattered is kept for the invariants."""
        if is_stale(self, pending):
            return False
        before = copy(self.task)
        if frees_capacity(self.task, pending.moves):
            self.task.quota_held = False
            self.released += 1
        for name, value in pending.moves.task.items():
            setattr(self.task, name, value)
        for name, value in pending.moves.contact.items():
            setattr(self.contact, name, value)
        self.task.rev += 1
        if before.status != self.task.status:
            self.words.append((Status(self.task.status), self.task.round))
            check_the_word(self, before)
        return True

    def judge(self, seen: Seen) -> Pending | None:
        task, contact = self.read()
        seen = replace(seen, epochs_agree=not self.safe_mode)
        decision = decide(facts_of(task, contact), seen, self.now, limits_of(task))
        if Want.PROBE in decision.wants:
            seen = replace(seen, probe=self.reachable())
            decision = decide(facts_of(task, contact), seen, self.now, limits_of(task))
        return Pending(task, contact, moves_of(task, decision, self.now), self.now) if decision else None

    def settle(self, seen: Seen) -> None:
        for _ in range(4):
            pending = self.judge(seen)
            if pending is None:
                return
            self.write(pending)
            seen = replace(seen, observation=None, creation=None)
            if not {"status", "presence"} & pending.moves.task.keys():
                return

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        actions: list[tuple[str, int]] = [
            ("pass_time", 12),
            ("provision", 5),
            ("observe", 5),
            ("watch", 14),
            ("withdraw", 3),
            ("reclaim", 4),
            ("finish_worker", 6),
            ("work_inside", 6),
            ("send", 8),
            ("receive", 8),
        ]
        if self.faults:
            actions += [("person", 1), ("accident", 1), ("outage", 1), ("partition", 1)]
        name = self.random.choices([name for name, _ in actions], [weight for _, weight in actions])[0]
        self.trace.append(f"{(self.now - START).total_seconds():8.0f} {name}")
        getattr(self, name)()
        check(self)

    def pass_time(self) -> None:
        self.now += timedelta(seconds=self.random.choice([1, 3, 5, 5, 10]))
        if self.late_at is not None and self.now >= self.late_at:
            self._make()

    def outage(self) -> None:
        """Nobody of us is there for a while: no sweep, no heartbeat is received. It may end in safe mode."""
        if self.random.random() < 0.3:
            self.now += timedelta(seconds=self.random.choice([20, 120, 900, 7200]))
        self.safe_mode = self.random.random() < 0.3

    def chance(self, probability: float) -> bool:
        return self.faults and self.random.random() < probability

    def provision(self) -> None:
        task = self.task
        if task.look_again_at is not None and task.look_again_at > self.now:
            return
        if (
            task.status in LIVE
            and task.status != Status.RUNNING
            and task.presence in {Presence.NONE, Presence.CREATING}
        ):
            self.settle(Seen())
            if task.status in LIVE:
                self._claim()
                self._create()
        elif task.status in TERMINAL and task.presence == Presence.CREATING and not self.chance(0.2):
            self._resolve()

    def _claim(self) -> None:
        task, contact = self.read()
        moves = Moves(task={"creating_at": self.now})
        if task.status == Status.PENDING:
            moves.task.update(status=Status.PROVISIONING, provisioning_at=self.now)
        if task.presence == Presence.NONE:
            move_presence(task, Presence.CREATING, moves)
            moves.task["secret"] = SecretState.PRESENT
        self.write(Pending(task, contact, moves, self.now))

    def _create(self) -> None:
        if self.chance(0.2):
            return self.settle(Seen(creation=self.random.choice([Creation.UNKNOWN, Creation.NO_ROOM]), cause="x"))
        if self.box is None and self.chance(0.1):
            self.late_at = self.now + timedelta(seconds=self.random.randrange(1, 56))
            return self.settle(Seen(creation=Creation.UNKNOWN, cause="answer lost, effect to come"))
        self._make()
        if self.chance(0.2):
            return self.settle(Seen(creation=Creation.UNKNOWN, cause="answer lost"))
        if self.chance(0.1):
            return None  # the worker dies before it writes
        return self._adopt()

    def _make(self) -> None:
        self.late_at = None
        if self.box is None:
            self.created += 1
            self.box = Box(instance=f"i{self.created}")

    def _adopt(self) -> None:
        task, contact = self.read()
        seen = Seen(creation=Creation.CREATED)
        decision = decide(facts_of(task, contact), seen, self.now, limits_of(task))
        moves = moves_of(task, decision, self.now)
        moves.task["sandbox"] = {"name": "x"}
        moves.task["instance"] = task.instance or (self.box.instance if self.box else "")
        self.write(Pending(task, contact, moves, self.now))
        self.settle(Seen())

    def _resolve(self) -> None:
        if self.box is not None:
            return self._adopt()
        if not may_still_appear(self.task, self.now):
            task, contact = self.read()
            moves = Moves(task={"lost_at": self.now, "secret": SecretState.WITHDRAWN})
            move_presence(task, Presence.LOST, moves)
            self.write(Pending(task, contact, moves, self.now))
        return None

    def look(self) -> Observation | None:
        """What the provider says; None for an error. It lies at most twice in a row."""
        if self.chance(0.2):
            return None
        if self.box is not None and self.lies < LIES and self.chance(0.1):
            self.lies += 1
            return Observation(state=State.ABSENT)
        self.lies = 0
        if self.box is None:
            return Observation(state=State.ABSENT, authoritative=True)
        if not self.box.alive:
            return Observation(state=State.LOST, reason="sandbox_lost", instance=self.box.instance, authoritative=True)
        return Observation(state=State.READY, instance=self.box.instance, endpoint=ENDPOINT)

    def observe(self) -> None:
        if self.task.presence != Presence.PRESENT:
            return
        observation = self.look()
        if observation is not None:
            self._hand_to_worker(Seen(observation=observation))

    def watch(self) -> None:
        """The contact sweep, with its tick."""
        if self.now - self.ticked_at > PATIENCE:
            self.unbroken_since = self.now
        self.ticked_at = self.now
        self._hand_to_worker(Seen(watching_since=self.unbroken_since, archive_stored=self.archive_settled()))

    def _hand_to_worker(self, seen: Seen) -> None:
        """Decide now; write now or, as a slow worker, some steps later."""
        pending = self.judge(seen)
        slow = [number for number, held in self.workers.items() if held is None]
        if pending is not None and slow and self.chance(0.3):
            self.workers[slow[0]] = pending
        elif pending is not None:
            self.write(pending)

    def finish_worker(self) -> None:
        for number, held in self.workers.items():
            if held is not None:
                self.write(held)
                self.workers[number] = None
                return

    def withdraw(self) -> None:
        if self.task.secret != SecretState.PRESENT or self.task.presence == Presence.CREATING:
            return
        if self.task.status in {Status.PENDING, Status.PROVISIONING} or self.chance(0.2):
            return
        if self.box is not None:
            self.box.secret = False
        task, contact = self.read()
        self.write(Pending(task, contact, Moves(task={"secret": SecretState.WITHDRAWN}), self.now))

    def reclaim(self) -> None:
        self.settle(Seen(archive_stored=self.archive_settled(), clock_trusted=True))
        if self.task.presence != Presence.RECLAIMING or self.safe_mode or self.chance(0.2):
            return
        task, contact = self.read()
        self.destroyed.append((task.removal_reason, self.now))
        if self.box is not None:
            self.box = None
        self.late_at = None  # the name is used up
        if may_still_appear(task, self.now):
            return
        moves = Moves(task={"reclaimed_at": self.now, "secret": SecretState.WITHDRAWN})
        move_presence(task, Presence.RECLAIMED, moves)
        self.write(Pending(task, contact, moves, self.now))

    def archive_settled(self) -> bool:
        return not self.contact.epoch or self.task.presence != Presence.PRESENT or self.task.round in self.archived

    # --- the supervisor and the network ------------------------------------------------------------------------------

    def reachable(self) -> bool:
        return self.box is not None and self.box.alive and self.box.ready and not self.box.partitioned

    def work_inside(self) -> None:
        box = self.box
        if box is None or not box.alive:
            return
        if not box.ready:
            box.ready = True
        elif box.gate == box.round and box.graph is GraphState.RUNNING:
            box.worked.add(box.round)
            if self.random.random() < 0.1:
                box.graph = self.random.choice([GraphState.SUCCEEDED, GraphState.FAILED])
        elif box.graph is GraphState.CANCELLING:
            box.graph = GraphState.CANCELLED
        elif box.graph in GRAPH_ENDED and self.chance(0.05):
            box.round, box.graph = box.round + 1, GraphState.RUNNING  # a person asks for a rerun
        if self.chance(0.02):
            box.boot += 1

    def send(self) -> None:
        box = self.box
        if box is None or not box.alive or not box.ready:
            return
        box.beat += 1
        self.network.append(
            Heartbeat(
                instance=box.instance,
                epoch=f"epoch of {box.instance}",
                boot=box.boot,
                round=box.round,
                beat=box.beat,
                head=Head(seq=1, chain="c"),
                graph=box.graph,
                ready=True,
                specification=SPECIFICATION,
            )
        )

    def receive(self) -> None:
        """Take something from the network: reordered, repeated or lost when there are faults."""
        if not self.network:
            return
        number = self.random.randrange(len(self.network)) if self.chance(0.3) else 0
        heartbeat = self.network[number] if self.chance(0.2) else self.network.pop(number)
        cut = self.box is not None and self.box.partitioned and heartbeat.instance == self.box.instance
        if cut or self.chance(0.1):
            return
        self._hear(heartbeat)

    def _hear(self, heartbeat: Heartbeat) -> None:
        if self.task.presence not in {Presence.CREATING, Presence.PRESENT}:
            return  # its token is over
        if self.task.presence == Presence.PRESENT and self.task.endpoint is None:
            observation = self.look()
            self.settle(Seen(observation=observation))
        if not self.task.instance:
            return
        facts = facts_of(self.task, self.contact)
        if admit(facts, heartbeat) not in NOT_NEWS:
            values: dict[str, Any] = {
                name: getattr(heartbeat, name) for name in ("instance", "epoch", "boot", "round", "beat")
            }
            for name, value in values.items():
                setattr(self.contact, name, value)
            self.contact.last_contact_at = self.heard_at = self.now
        self.settle(Seen(report=heartbeat, proof=Proof.NOT_ASKED, archive_stored=self.archive_settled()))
        if self.box is not None and heartbeat.instance == self.box.instance and not self.chance(0.1):
            self._obey(desired(facts_of(self.task, self.contact)))

    def _obey(self, wanted: Desired) -> None:
        box = self.box
        assert box is not None
        if wanted is Desired.RUN:
            box.gate = self.task.round
        elif wanted is Desired.CANCEL and box.graph not in GRAPH_ENDED:
            box.graph = GraphState.CANCELLING
        elif wanted is Desired.STOP:
            box.gate = 0
            if self.task.presence == Presence.PRESENT:
                self.archived.add(self.task.round)

    # --- people and accidents ----------------------------------------------------------------------------------------

    def person(self) -> None:
        column = self.random.choice(["cancel_requested_at"] * 3 + ["delete_requested_at"])
        if getattr(self.task, column) is not None or (column[0] == "c" and self.task.status in TERMINAL):
            return
        if self.random.random() < 0.3:
            task, contact = self.read()
            self.write(Pending(task, contact, Moves(task={column: self.now}), self.now))
            self.settle(Seen())

    def accident(self) -> None:
        if self.box is None or self.random.random() > 0.2:
            return
        if self.random.random() < 0.5:
            self.box.alive = False
        else:
            self.box = Box(instance=f"replacement of {self.box.instance}", secret=False)

    def partition(self) -> None:
        if self.box is not None and self.random.random() < (0.2 if self.box.partitioned else 0.8):
            self.box.partitioned = not self.box.partitioned

    def calm(self, ticks: int) -> None:
        """Stop every fault and let all sweeps run some times, a minute apart in small steps."""
        self.faults = self.safe_mode = False
        if self.box is not None:
            self.box.partitioned = False
        for _ in range(ticks):
            for _ in range(12):
                self.now += timedelta(seconds=5)
                for name in ("provision", "work_inside", "send", "receive", "watch", "finish_worker"):
                    getattr(self, name)()
                    check(self)
                self.network.clear()
            for name in ("observe", "withdraw", "reclaim"):
                getattr(self, name)()
                check(self)
