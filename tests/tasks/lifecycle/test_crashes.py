"""The worker dies before or after its k-th effect, for k = 1, 2, 3 … until a life passes without a crash.

An effect is a call of the provider or a statement that writes to the database. Whatever the moment, the next worker
finds everything in the rows: one sandbox, one removal, no secret and no quota left behind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db import connection

from sandbox_supervisor.protocol.states import GraphState
from tasks_app.models import Quota, Task
from tasks_app.services import contact, lifecycle, observation, providers, provisioning, retention
from tasks_app.states import LIVE, Presence, SecretState, Status

WRITES = ("INSERT", "UPDATE", "DELETE")
BOUND = 200  # more effects than any of these lives has


class Crash(BaseException):
    """The process is gone. No ``except Exception`` of ours outlives it."""


class Counter:
    """Counts effects, dies before or after the one it was told, and lets the dead process do nothing more."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.seen, self.dead = at, after, 0, False

    def carry_out(self, effect: Callable[[], Any]) -> Any:
        if self.dead:
            raise Crash
        self.seen += 1
        if self.seen != self.at:
            return effect()
        if self.after:
            effect()
        self.dead = True
        raise Crash

    def survive(self, work: Callable[[], Any]) -> Any:
        """Do one piece of work as a process of its own."""
        self.dead = False
        with suppress(Crash):
            return work()

    @property
    def crashed(self) -> bool:
        return self.seen >= self.at


class Fragile:
    """A provider whose every call is an effect."""

    def __init__(self, provider: Any, counter: Counter) -> None:
        self._provider, self._counter = provider, counter

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._provider, verb)
        if verb in {"observe", "capabilities", "world"}:
            return call
        return lambda *args, **kwargs: self._counter.carry_out(lambda: call(*args, **kwargs))


@contextmanager
def dying(counter: Counter) -> Iterator[None]:
    def wrap(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        def run() -> Any:
            return execute(sql, params, many, context)

        return counter.carry_out(run) if sql.startswith(WRITES) else run()

    provider = providers.provider_named("scripted")
    with providers.using("scripted", Fragile(provider, counter)), connection.execute_wrapper(wrap):
        yield


def one_tick(house, task: Task, graph: GraphState, counter: Counter) -> None:
    """Everything that happens in a quarter of a minute, each line in a process of its own."""
    house.clock.advance(seconds=16)
    for sweep in (provisioning.sweep, provisioning.sweep_secrets, observation.sweep, contact.sweep):
        counter.survive(sweep)
    now = house.again(task)
    box = house.world.boxes.get(now.sandbox_name)
    if box is not None and box.running and now.presence in {Presence.CREATING, Presence.PRESENT}:
        said = graph if now.running_at else GraphState.RUNNING
        counter.survive(lambda: house.beat(now, instance=box.instance, graph=said))
    counter.survive(retention.sweep)


def live(house, key: str, wish: str, graph: GraphState, counter: Counter) -> Any:
    """A whole life: created by a client that repeats its request, worked on, ended, removed."""
    created = None
    while created is None:
        created = counter.survive(lambda: house.create(key=key, task_branch=key))
    task = created.task
    for tick in range(40):
        if wish and tick >= 2:
            counter.survive(lambda: lifecycle.request_delete(task.pk, actor="user:ada"))
        if house.again(task).status not in LIVE:
            break
        one_tick(house, task, graph, counter)
    task = house.again(task)
    if not wish and task.retain_until:
        while not task.snapshots.exists():
            counter.survive(lambda: house.archived(task))
        house.clock.moment = max(house.clock(), task.retain_until)
    for _ in range(5):
        rested = at_rest(house, task)
        house.clock.advance(seconds=400)
        one_tick(house, task, graph, counter)
        if rested:  # and this tick was more of the same
            break
    return house.again(task)


def at_rest(house, task: Task) -> bool:
    """Say whether nothing of the task is left to do; that it is true in the end is for the test to say."""
    now = house.again(task)
    used = Quota.objects.exclude(used=0).exists()
    return (
        now.presence == Presence.RECLAIMED and now.secret != SecretState.PRESENT and not house.world.boxes and not used
    )


@pytest.mark.parametrize(
    ("wish", "graph", "after"),
    [
        pytest.param("", GraphState.SUCCEEDED, True, id="completed, after"),
        pytest.param("delete", GraphState.RUNNING, False, id="deleted, before"),
        pytest.param("", GraphState.SUCCEEDED, False, id="completed, before", marks=pytest.mark.slow),
        pytest.param("delete", GraphState.RUNNING, True, id="deleted, after", marks=pytest.mark.slow),
        pytest.param("", GraphState.FAILED, True, id="failed, after", marks=pytest.mark.slow),
    ],
)
def test_a_life_survives_a_crash_at_every_effect(house, wish, graph, after):
    for at in range(1, BOUND):
        counter = Counter(at, after=after)
        key = f"life-{at}"
        with dying(counter):
            task = live(house, key, wish, graph, counter)
        rows = Task.objects.filter(task_branch=key).count()
        created = {done.name for done in house.world.history if done.verb == "create" and done.effect}
        assert rows == 1, f"effect {at}: {rows} rows"
        assert len(created) <= at, f"effect {at}: a second sandbox"
        assert (task.presence, task.secret != SecretState.PRESENT) == (Presence.RECLAIMED, True), (
            f"effect {at}: {task.status}"
        )
        assert task.status == {GraphState.SUCCEEDED: Status.COMPLETED, GraphState.FAILED: Status.FAILED}.get(
            graph, Status.CANCELLED
        )
        assert not house.world.boxes, f"effect {at}: something is left"
        assert set(Quota.objects.values_list("used", flat=True)) == {0}, f"effect {at}: quota"
        if not counter.crashed:
            return
    pytest.fail(f"no life passed without a crash in {BOUND} tries")
