from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.git_remotes import HttpRemote, Project, make_project, served


@pytest.fixture(autouse=True)
def state_dir(settings, tmp_path_factory) -> Path:
    """A state directory of the test's own: mirrors and files of one test never help another."""
    folder = tmp_path_factory.mktemp("state")
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
