import pytest

from sandbox_supervisor.log import Log


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "log"


@pytest.fixture
async def log(folder):
    opened = Log.open(folder)
    yield opened
    await opened.close()
