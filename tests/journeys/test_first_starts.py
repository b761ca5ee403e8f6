"""Two first starts of the product at one moment on a state directory that is not there yet."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.running_product import BEAT, MANAGER, REDIS, WEB, WORKER, Product, product, until

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAMS = (MANAGER, REDIS, WEB, WORKER, BEAT)
STARTS = "starting Redis, web, worker and beat"


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-f-"))
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def said(place: Product) -> list[str]:
    """What two commands told that were begun together, each of which needs the product."""
    begun = [place.begin("run", "/nowhere", "x") for _ in range(2)]
    return [each.communicate(timeout=300)[1] for each in begun]


def test_one_of_them_starts_the_product_and_both_use_it(place, said):
    assert all("/nowhere is not a folder" in words for words in said), said
    assert sorted(STARTS in words for words in said) == [False, True]
    once = [1] * len(PROGRAMS)  # but a child that is just being forked looks like its parent
    until(lambda: [len(place.pids(*words)) for words in PROGRAMS] == once, what="every program runs once")


def test_the_products_processes_log_what_they_would_without_the_command_that_started_them(place, said):
    """The command line itself logs warnings only."""
    for words in PROGRAMS:
        for pid in place.pids(*words):
            assert b"CAISSON_LOG_LEVEL=" not in Path(f"/proc/{pid}/environ").read_bytes(), words
