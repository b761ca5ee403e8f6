"""A house whose repository is a real remote, over a path or over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks_app.models import Task
from tests.git_remotes import HttpRemote, Project, make_project, served
from tests.task_rows import House, make_house, make_task
from workspaces_app.models import AllowedRoot


@pytest.fixture(autouse=True)
def state_dir(settings, tmp_path_factory) -> Path:
    """A state directory of the test's own: mirrors and files of one test never help another."""
    folder: Path = tmp_path_factory.mktemp("state")
    settings.STATE_DIR = folder
    settings.PRIVATE_REMOTES = ("127.0.0.1",)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def http_remote(project: Project) -> Iterator[HttpRemote]:
    """The project's remote over real HTTP: ``<url>/remote.git``."""
    with served(project.remote.parent) as remote:
        yield remote


@pytest.fixture
def house(project: Project) -> House:
    house = make_house(remote=str(project.remote))
    AllowedRoot.objects.create(workspace=house.workspace, path=str(project.remote.parent))
    return house


@pytest.fixture
def task(house: House, project: Project) -> Task:
    return make_task(house, base_commit=project.base)


@pytest.fixture
def http_task(project: Project, http_remote: HttpRemote) -> SimpleNamespace:
    house = make_house("web", remote=f"{http_remote.url}/remote.git")
    return SimpleNamespace(task=make_task(house, base_commit=project.base), faults=http_remote.faults)
