import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from config import state


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_state_directory_is_private(tmp_path):
    folder = state.prepare(tmp_path / "s")
    assert mode(folder) == 0o700
    assert mode(folder / "secrets") == 0o700


def test_preparing_twice_changes_nothing(tmp_path):
    folder = state.prepare(tmp_path / "s")
    (folder / "secrets" / "x").write_text("kept")
    state.prepare(folder)
    assert (folder / "secrets" / "x").read_text() == "kept"


def test_a_generated_secret_is_made_once_and_readable_by_the_owner_only(tmp_path):
    folder = state.prepare(tmp_path / "s")
    first = state.generated(folder, "pepper", prefix="k1:")
    assert first.startswith("k1:")
    assert len(first) == 3 + 64
    assert state.generated(folder, "pepper", prefix="k1:") == first
    assert mode(folder / "secrets" / "pepper") == 0o600


def test_two_processes_that_race_for_a_secret_agree(tmp_path):
    folder = state.prepare(tmp_path / "s")
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: state.generated(folder, "raced"), range(32)))
    assert len(made) == 1
    assert [path.name for path in (folder / "secrets").iterdir()] == ["raced"]


def test_sockets_of_a_short_state_directory_lie_inside_it(tmp_path_factory):
    folder = state.prepare(tmp_path_factory.mktemp("s"))
    assert state.run_folder(folder) == folder / "run"


def test_sockets_of_a_long_state_directory_lie_in_a_private_short_folder(tmp_path):
    folder = state.prepare(tmp_path / ("long" * 30))
    run = state.run_folder(folder)
    try:
        assert len(os.fsencode(run / "supervisord.sock")) < 100
        assert mode(run) == 0o700
        assert state.run_folder(folder) == run
    finally:
        run.rmdir()


def test_a_short_folder_that_others_may_enter_is_refused(tmp_path):
    folder = state.prepare(tmp_path / ("other" * 30))
    run = state.run_folder(folder)
    run.chmod(0o755)
    try:
        with pytest.raises(PermissionError, match="not a private folder"):
            state.run_folder(folder)
    finally:
        run.rmdir()
