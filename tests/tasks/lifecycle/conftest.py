"""A deployment with one workspace, a real repository, a flow, a scripted provider and a clock that tests move."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from policy_app.services.publish import seed_revision
from policy_app.values import PolicyValues
from registry_app.flows.compiler import CompiledFlow
from registry_app.services.drivers import store_driver
from registry_app.services.flows import compiled_or_refused, store_flow
from registry_app.services.seed import SCRIPTED
from sandbox_providers.registry import ProviderSettings
from sandbox_providers.scripted import IMAGE, ScriptedProvider, World
from tasks_app.services import clock as task_clock
from tasks_app.services import providers, retention
from tests.git_remotes import Project, make_project
from tests.tasks.lifecycle.house import DELIVERY_FLOW, FLOW, START, Clock, House
from workspaces_app.access import actor_of_user
from workspaces_app.services.audit import SYSTEM
from workspaces_app.services.bootstrap import ensure_workspace_and_admin
from workspaces_app.services.repositories import allow_root, register


@pytest.fixture
def clock() -> Iterator[Clock]:
    moving = Clock(START)
    with task_clock.reading(moving):
        yield moving


@pytest.fixture
def world(tmp_path: Path, settings) -> Iterator[World]:
    """What is there in the scripted provider that serves new tasks."""
    settings.PROVIDERS = ("scripted",)
    settings.SANDBOX_IMAGE = IMAGE
    provider = ScriptedProvider(ProviderSettings(state_dir=tmp_path, image_digest=IMAGE))
    with providers.using("scripted", provider):
        yield provider.world
    World.forget(tmp_path)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One real repository for all: these tests read it and never push to it."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def own_project(tmp_path: Path):
    """A repository that the test may change."""
    folder = tmp_path / "own"
    folder.mkdir()
    return make_project(folder)


@cache
def compiled(source: str) -> CompiledFlow:
    return compiled_or_refused(source)


@pytest.fixture
def house(db, world: World, clock: Clock, project: Project, monkeypatch) -> House:
    return furnish(world, clock, project, monkeypatch)


@pytest.fixture
def open_house(transactional_db, world: World, clock: Clock, project: Project, monkeypatch) -> House:
    """The same with real commits, for tests in which several connections work at once."""
    return furnish(world, clock, project, monkeypatch)


def furnish(world: World, clock: Clock, project: Project, monkeypatch) -> House:
    monkeypatch.setattr(retention, "_guard", task_clock.JumpGuard(monotonic=clock.monotonic))
    first = ensure_workspace_and_admin()
    actor = actor_of_user(first.admin)
    allow_root(workspace=first.workspace, path=str(project.remote.parent), by=actor)
    repository = register(workspace=first.workspace, slug="pets", clone_url=str(project.remote), by=actor)
    seed_revision(PolicyValues(provider="scripted", runner_image=IMAGE), now=clock())
    store_driver(SCRIPTED, description="", by=SYSTEM)
    return House(
        world=world,
        clock=clock,
        project=project,
        actor=actor,
        admin=first.admin,
        workspace=first.workspace,
        repository=repository,
        flow=store_flow(FLOW, compiled(FLOW), workspace=None, number=1, by=actor),
        delivery_flow=store_flow(DELIVERY_FLOW, compiled(DELIVERY_FLOW), workspace=None, number=1, by=actor),
    )
