"""What the tokens of a sandbox may do, and when they are good for nothing."""

import pytest

from sandbox_supervisor.protocol.states import GraphState
from tasks_app.errors import TokenEnded, TokenRefused
from tasks_app.services import retention, tokens
from tasks_app.services.tokens import Audience, Scope
from tasks_app.states import Presence, Status

ALL = frozenset(Scope)


@pytest.mark.parametrize(
    ("status", "presence", "allowed"),
    [
        (Status.PROVISIONING, Presence.CREATING, ALL - {Scope.DELIVER}),
        (Status.PROVISIONING, Presence.PRESENT, ALL - {Scope.DELIVER}),
        (Status.RUNNING, Presence.PRESENT, ALL),
        (Status.COMPLETED, Presence.PRESENT, {Scope.HEARTBEAT, Scope.ARCHIVE}),
        (Status.FAILED, Presence.PRESENT, {Scope.HEARTBEAT, Scope.ARCHIVE}),
        (Status.CANCELLED, Presence.PRESENT, {Scope.HEARTBEAT, Scope.ARCHIVE}),
        (Status.PENDING, Presence.NONE, set()),
        (Status.FAILED, Presence.LOST, set()),
        (Status.FAILED, Presence.TERMINATED, set()),
        (Status.COMPLETED, Presence.RECLAIMING, set()),
        (Status.COMPLETED, Presence.RECLAIMED, set()),
    ],
)
def test_the_scopes_follow_the_state_of_the_task(status, presence, allowed):
    assert {scope for scope in Scope if tokens.allows(status, presence, scope)} == allowed


def test_the_supervisors_token_names_its_task(house):
    task = house.running()
    assert tokens.verify_task_token(tokens.task_token(task), Scope.DELIVER).pk == task.pk


def test_the_download_token_downloads_and_nothing_else(house):
    task = house.starting()
    token = tokens.task_token(task, Audience.MATERIALISE)
    assert tokens.verify_task_token(token, Scope.DOWNLOAD).pk == task.pk
    with pytest.raises(TokenRefused):
        tokens.verify_task_token(token, Scope.HEARTBEAT)


def test_the_dial_token_is_no_task_token(house):
    task = house.running()
    forged = f"cst_{task.pk}.{task.token_key_id}.{tokens.dial_token(task)}"
    with pytest.raises(TokenRefused):
        tokens.verify_task_token(forged, Scope.HEARTBEAT)


def test_a_token_of_one_task_does_not_speak_for_another(house):
    first, second = house.running(task_branch="a"), house.running(task_branch="b")
    mac = tokens.task_token(first).rpartition(".")[2]
    with pytest.raises(TokenRefused):
        tokens.verify_task_token(f"cst_{second.pk}.{second.token_key_id}.{mac}", Scope.HEARTBEAT)


@pytest.mark.parametrize(
    "bearer", ["", "cst_", "cst_a.b", "cst_a.b.c.d", "csn_x", "cst_\u00e9.k1.00", "cst_" + "x" * 500, "cst_a.b.\x00"]
)
@pytest.mark.django_db
def test_what_is_no_token_is_refused(bearer):
    with pytest.raises(TokenRefused):
        tokens.verify_task_token(bearer, Scope.HEARTBEAT)


def test_a_truncated_or_changed_token_is_refused(house):
    token = tokens.task_token(house.running())
    for changed in (token[:-1], token + "0", token[:-1] + ("0" if token[-1] != "0" else "1")):
        with pytest.raises(TokenRefused):
            tokens.verify_task_token(changed, Scope.HEARTBEAT)


def test_a_zombie_cannot_deliver_after_the_verdict_but_a_rerun_can(house):
    task = house.running()
    token = tokens.task_token(task)
    house.beat(task, graph=GraphState.FAILED)
    with pytest.raises(TokenEnded):
        tokens.verify_task_token(token, Scope.DELIVER)
    house.beat(task, round=2)
    assert tokens.verify_task_token(token, Scope.DELIVER).round == 2


def test_a_deleted_tasks_token_is_over_when_the_removal_begins(house):
    task = house.archived(house.ended())
    retention.delete_task(task.pk, actor=house.actor)
    house.box(task).stuck = ("slow",)
    retention.reclaim(task.pk)
    with pytest.raises(TokenEnded):
        tokens.verify_task_token(tokens.task_token(task), Scope.HEARTBEAT)


def test_a_token_outlives_the_rotation_of_the_pepper_while_its_key_is_in_the_ring(house, settings):
    task = house.running()
    token = tokens.task_token(task)
    ring = settings.TOKEN_PEPPER_RING
    settings.TOKEN_PEPPER_RING = (("k2", "ab" * 32), *ring)
    assert tokens.verify_task_token(token, Scope.HEARTBEAT).pk == task.pk
    assert tokens.pepper_in_use() == "k2"
    settings.TOKEN_PEPPER_RING = (("k2", "ab" * 32),)
    with pytest.raises(TokenRefused):
        tokens.verify_task_token(token, Scope.HEARTBEAT)
