"""A real product whose database is restored from a backup: nothing is removed until a person confirms, then it is."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.running_product import WEB, Product, product, repository, until

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

FLOW = """
apiVersion: caisson/v1
kind: Flow
name: one-line
nodes:
  - key: make
    command: {run: "echo made > made.txt"}
    changes: keep
  - key: deliver
    needs: [make]
    delivery: {}
"""


@pytest.fixture
def place() -> Iterator[Product]:
    folder = Path(tempfile.mkdtemp(prefix="caisson-r-"))
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


def run(place: Product, name: str) -> str:
    """Run a task to its end and give its id."""
    folder = place.state.parent / name
    remote = repository(folder, {"README.md": "hello\n"})
    (folder / "flow.yaml").write_text(FLOW)
    before = {each["id"] for each in place.tasks()} if place.pids(*WEB) else set()
    done = place.caisson("run", str(remote), "Make something", "--flow", str(folder / "flow.yaml"))
    assert done.returncode == 0, done.stderr
    (made,) = {each["id"] for each in place.tasks()} - before
    return str(made)


def copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def sandboxes(place: Product) -> set[str]:
    return {path.name for path in (place.state / "sandboxes").iterdir() if path.name.startswith("cs-")}


def test_a_restored_product_removes_nothing_until_a_person_confirms(place):
    database, backup = place.state / "caisson.sqlite3", place.state.parent / "backup.sqlite3"
    known = run(place, "a")
    kept = sandboxes(place)
    copy(database, backup)
    run(place, "b")
    (orphan,) = sandboxes(place) - kept
    step = "from tasks_app.services import deployment; deployment.advance()"
    for _ in range(2):
        place.inside(step)

    assert place.caisson("stop").returncode == 0
    database.unlink()
    for left in place.state.glob("caisson.sqlite3-*"):
        left.unlink()
    shutil.copy(backup, database)
    with up(place):
        said = place.caisson("doctor")
        assert said.returncode == 1
        assert "SAFE MODE" in said.stdout
        assert f"sandbox {orphan}" in said.stdout
        url, headers = f"{place.url}/api/v1/tasks/{known}", {"Authorization": f"Bearer {place.token}"}
        assert httpx.delete(url, headers=headers, timeout=40, trust_env=False).status_code < 300
        place.inside("from tasks_app.services import retention; retention.sweep()")
        assert sandboxes(place) == kept | {orphan}

        assert place.caisson("confirm-database", "--yes").returncode == 0
        until(lambda: sandboxes(place) == {orphan}, what="the deleted task's sandbox removed")
        assert "SAFE MODE" not in place.caisson("doctor").stdout


@contextmanager
def up(place: Product) -> Iterator[None]:
    started = place.begin("up")
    try:
        until(lambda: is_up(place), what="product up again")
        yield
    finally:
        place.caisson("stop")
        started.communicate(timeout=180)


def is_up(place: Product) -> bool:
    try:
        return httpx.get(f"{place.url}/livez", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
