"""Workers that are killed at any Git call, or that race, still end in one branch and one delivered row."""

import os
import signal
import threading
import warnings
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connections

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app import git
from tasks_app.models import Delivery, TaskEvent
from tasks_app.services import clock, delivery
from tests.git_remotes import Project
from tests.task_rows import House, make_task
from tests.tasks.delivery.handing import hand_over

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


def in_a_process(work: Callable[[], None]) -> int:
    """Run ``work`` in a fork that shares nothing but the database and the files; give its wait status."""
    connections.close_all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child touches none of them
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def dies_at(call: int, *, after: bool) -> Callable[..., git.Completed]:
    """Make a ``git.run`` that kills its process, without a word, before or after the given call."""
    run, count = git.run, 0

    def dying(*args: str, **options: object) -> git.Completed:
        nonlocal count
        count += 1
        if count == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = run(*args, **options)  # type: ignore[arg-type]
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return dying


def carried_later(row: Delivery) -> None:
    """Let the next worker come when the killed one's lease has run out."""
    later = clock.database_now() + timedelta(minutes=5)
    with clock.reading(lambda: later):
        delivery.deliver(row.pk)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_worker_killed_at_any_git_call_leaves_work_that_the_next_one_finishes(project: Project, house: House, after):
    """The killed worker's lease runs out, the next one reads the remote first; no call is left out."""
    call = 0
    while True:
        call += 1
        before, row = project.refs(), hand_over(project, make_task(house, base_commit=project.base))

        def killed(number: int = call, pk: str = row.pk) -> None:
            git.run = dies_at(number, after=after)
            delivery.deliver(pk)

        was_killed = os.WIFSIGNALED(in_a_process(killed))
        carried_later(row)
        row.refresh_from_db()
        assert (row.state, row.code) == (DeliveryState.DELIVERED, ""), f"killed {after=} call {call}"
        assert project.refs() == before | {f"refs/heads/{row.branch}": row.commit}
        assert TaskEvent.objects.filter(task=row.task, kind="delivery.delivered").count() == 1
        if not was_killed:
            break
    assert call > 6  # looked at the remote, unpacked, checked, pushed, looked again


def test_workers_that_race_push_once(project: Project, http_task: SimpleNamespace):
    row = hand_over(project, http_task.task)
    gate = threading.Barrier(4, timeout=60)

    def work() -> None:
        try:
            gate.wait()
            delivery.deliver(row.pk)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    row.refresh_from_db()
    assert row.state == DeliveryState.DELIVERED
    pushes = [path for path in http_task.faults.requests if path.endswith("/git-receive-pack")]
    assert len(pushes) == 1
    assert TaskEvent.objects.filter(task=row.task, kind="delivery.delivered").count() == 1


def test_a_request_that_comes_twice_at_once_is_one_delivery(project: Project, house: House):
    from tests.tasks.delivery.handing import request_for

    task = make_task(house, base_commit=project.base)
    commit = project.commit({"a.txt": "a"})
    request = request_for(task, commit, project.bundle(commit, branch=task.task_branch))
    gate, answers = threading.Barrier(3, timeout=60), []

    def work() -> None:
        try:
            gate.wait()
            answers.append(delivery.receive(task, request))
        finally:
            connections.close_all()

    senders = [threading.Thread(target=work) for _ in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(120)
    assert len({answer.id for answer in answers}) == 1 == Delivery.objects.count()


def test_a_killed_worker_leaves_no_quarantine_that_grows_for_ever(project: Project, house: House, state_dir):
    """What a killed worker left in the mirrors' folder is swept by the next delivery."""
    row = hand_over(project, make_task(house, base_commit=project.base))

    def killed() -> None:
        run = git.run

        def dying(*args: str, **options: object) -> git.Completed:
            if "index-pack" in args:
                os.kill(os.getpid(), signal.SIGKILL)
            return run(*args, **options)  # type: ignore[arg-type]

        git.run = dying
        delivery.deliver(row.pk)

    assert os.WIFSIGNALED(in_a_process(killed))
    assert list((state_dir / "mirrors").glob("*quarantine-*"))
    carried_later(row)
    assert not list((state_dir / "mirrors").glob("*quarantine-*"))
