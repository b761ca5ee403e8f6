"""While the database may be one that was restored nothing is pushed: a delivery waits, says so, and goes on."""

import pytest

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app import git
from tasks_app.services import delivery, deployment
from tests.tasks.delivery.handing import carried, hand_over
from tests.tasks.lifecycle.restoring import fall_behind
from workspaces_app.access import actor_of_user
from workspaces_app.services.bootstrap import ensure_workspace_and_admin

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def begun(state_dir) -> None:
    """A deployment that has taken some steps."""
    for _ in range(3):
        deployment.advance()


def confirm() -> None:
    deployment.confirm(by=actor_of_user(ensure_workspace_and_admin(username="root").admin))


def test_a_delivery_waits_visibly_and_goes_on_after_the_confirmation(project, task):
    before, row = project.refs(), hand_over(project, task)
    fall_behind()
    for _ in range(20):
        row = carried(row)
    assert (row.state, row.code, row.attempts) == (DeliveryState.QUEUED, "safe_mode", 0)
    answer = delivery.answer(row)
    assert answer.code == "safe_mode"
    assert deployment.CONFIRM in answer.message
    assert project.refs() == before
    confirm()
    row = carried(row)
    assert (row.state, row.code, row.message) == (DeliveryState.DELIVERED, "", "")
    assert project.refs() == before | {f"refs/heads/{task.task_branch}": row.commit}


def test_a_database_that_is_restored_in_the_middle_of_a_delivery_stops_it_before_the_push(project, task, monkeypatch):
    before, row = project.refs(), hand_over(project, task)
    run = git.run

    def restored_meanwhile(*arguments: str, **options: object) -> git.Completed:
        if "index-pack" in arguments:
            fall_behind()
        return run(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(git, "run", restored_meanwhile)
    row = carried(row)
    assert (row.state, row.code) == (DeliveryState.QUEUED, "safe_mode")
    assert project.refs() == before
    monkeypatch.setattr(git, "run", run)
    confirm()
    assert carried(row).state == DeliveryState.DELIVERED
