"""Set-up from nothing, through interruptions and kills, with the standard library only."""

import ast
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.commands import setup
from tests.small_package import requirement

ROOT = Path(__file__).resolve().parents[2]
LIST = "requirements.txt"
NOTHING = io.StringIO()


def caisson_under(version: tuple[object, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the start script under this interpreter, which says that it is another version."""
    code = (
        f"import sys, runpy; sys.version_info = {version!r}; sys.argv = ['caisson', *{arguments!r}]\n"
        f"runpy.run_path({str(ROOT / 'caisson')!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_a_python_that_is_too_old_is_told_so_in_a_sentence():
    done = caisson_under((3, 9, 2, "final", 0), "up")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "is Python 3.9" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_start_script_can_be_read_by_a_much_older_python():
    script = ast.parse((ROOT / "caisson").read_text(), feature_version=(3, 7))
    first = next(line for line in script.body if isinstance(line, ast.If))
    assert "version_info" in ast.dump(first.test)
    ours = [line.lineno for line in script.body if isinstance(line, ast.ImportFrom)]
    assert all(first.lineno < line for line in ours), "the check comes before anything of ours is read"


def test_to_ask_how_the_suite_is_run_sets_nothing_up(tmp_path, capsys):
    assert setup.main(str(tmp_path), ["test", "--help"]) == 0
    assert "test [fast|nightly]" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("said", "why"), [("git version 2.30.2", "2.30.2"), (None, "not installed")])
def test_a_git_that_is_missing_or_too_old_is_told_so_in_a_sentence(tmp_path, monkeypatch, said, why):
    if said:
        (tmp_path / "git").write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup.SetupProblem, match=why) as refused:
        setup.check_git()
    assert "2.38" in str(refused.value)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose one requirement is a small package beside it."""
    folder = tmp_path / "check out"
    folder.mkdir()
    (folder / LIST).write_text(requirement(folder, {"small.py": "WHOLE = True\n"}))
    return folder


def prepared(checkout: Path) -> subprocess.Popen[str]:
    code = "from pathlib import Path; from config.commands import setup; "
    code += f"setup.prepare(Path({str(checkout)!r}), {LIST!r})"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def is_whole(checkout: Path) -> bool:
    python = checkout / ".venv" / "bin" / "python"
    return subprocess.run([python, "-c", "import small; assert small.WHOLE"], check=False).returncode == 0


@pytest.mark.slow
def test_what_is_set_up_is_left_alone_and_needs_no_right_to_write(checkout):
    setup.prepare(checkout, LIST)
    assert is_whole(checkout)
    (checkout / ".venv.lock").unlink()
    setup.prepare(checkout, LIST)
    assert not (checkout / ".venv.lock").exists()


@pytest.mark.slow
def test_a_package_that_is_half_there_after_a_kill_is_installed_again(checkout):
    setup.prepare(checkout, LIST)
    environment = setup.Environment(checkout / ".venv")
    module = next(environment.folder.rglob("small.py"))
    module.unlink()
    (environment.stamps / LIST).unlink()
    environment.unfinished.touch()
    setup.prepare(checkout, LIST)
    assert is_whole(checkout)
    assert not environment.unfinished.exists()


@pytest.mark.slow
def test_an_environment_that_was_not_made_to_its_end_is_made_anew(checkout):
    half = checkout / ".venv" / "lib" / "half"
    half.mkdir(parents=True)
    setup.prepare(checkout, LIST)
    assert is_whole(checkout)
    assert not half.exists()


@pytest.mark.slow
def test_of_two_set_ups_at_once_one_waits_and_both_have_a_whole_environment(checkout):
    with prepared(checkout) as first, first.stderr or NOTHING as words:
        while "installing" not in (line := words.readline()):
            assert line, "the first ended before it installed anything"
        first.send_signal(signal.SIGSTOP)  # or a slow start of the second might find all done
        with prepared(checkout) as second, second.stderr or NOTHING as other:
            told = other.readline()
            first.send_signal(signal.SIGCONT)
            assert "waiting" in told
            assert (first.wait(timeout=90), second.wait(timeout=90)) == (0, 0)
    assert is_whole(checkout)


@pytest.mark.slow
def test_a_killed_set_up_leaves_the_lock_to_its_pip(checkout):
    """Else two would write into one environment."""
    fifo = checkout / "pip is here"
    os.mkfifo(fifo)
    setup.prepare(checkout, LIST)
    environment = setup.Environment(checkout / ".venv")
    (environment.stamps / LIST).unlink()
    folder = next(environment.folder.rglob("small.py")).parent
    (folder / "sitecustomize.py").write_text(f"import sys\nif 'install' in sys.argv:\n    open({str(fifo)!r}).read()\n")
    with prepared(checkout) as first:
        writer = fifo.open("w")  # pip has begun, and waits until this is closed
        first.kill()
    with prepared(checkout) as second, second.stderr or NOTHING as words:
        assert "waiting" in words.readline()
        (folder / "sitecustomize.py").unlink()
        writer.close()
        assert second.wait(timeout=90) == 0
    assert is_whole(checkout)


@pytest.mark.slow
def test_requirements_that_cannot_be_installed_are_a_sentence_and_the_next_run_goes_on(checkout):
    setup.prepare(checkout, LIST)
    environment, good = setup.Environment(checkout / ".venv"), (checkout / LIST).read_text()
    (checkout / LIST).write_text(good.replace("sha256:", "sha256:00")[:-3] + "\n")
    with pytest.raises(setup.SetupProblem, match=LIST):
        setup.prepare(checkout, LIST)
    assert not environment.is_whole()
    (checkout / LIST).write_text(good)
    setup.prepare(checkout, LIST)
    assert environment.is_whole()
    assert is_whole(checkout)


@contextmanager
def running(checkout: Path, *words: str) -> Iterator[int]:
    """A program of the environment that runs until it is ended; what it is can be seen by its command line only."""
    modules = next((checkout / ".venv").rglob("small.py")).parent / "supervisor"
    modules.mkdir(exist_ok=True)
    for path in (modules / "supervisord.py", checkout / "caisson"):
        path.write_text("print('up', flush=True); input()")
    with subprocess.Popen(
        [checkout / ".venv" / "bin" / "python", *words],
        env=os.environ | {"CAISSON_STATE_DIR": "/some where/state"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        yield program.pid
        program.kill()


PRODUCT = ("-m", "supervisor.supervisord", "--configuration", "x")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["pins", "Python"])
def test_nothing_is_changed_under_a_running_product(checkout, change):
    setup.prepare(checkout, LIST)
    environment = setup.Environment(checkout / ".venv")
    before = (checkout / LIST).read_text()
    if change == "pins":
        (checkout / LIST).write_text(before + "# another version\n")
    else:
        (environment.stamps / LIST).write_text("3.11.0 " + "0" * 64)
        environment.made.unlink()
    with running(checkout, *PRODUCT) as pid:
        with pytest.raises(setup.SetupProblem, match=rf"product of /some where/state \(pid {pid}\)") as refused:
            setup.prepare(checkout, LIST)
        assert "CAISSON_STATE_DIR='/some where/state' ./caisson stop" in str(refused.value)
        assert not environment.holds(checkout / LIST)
        assert (environment.folder / "lib").exists()
    setup.prepare(checkout, LIST)
    assert environment.holds(checkout / LIST)
    assert is_whole(checkout)


@pytest.mark.slow
def test_nothing_is_changed_under_a_running_command(checkout, monkeypatch):
    monkeypatch.setattr(setup, "ENDING", 0.2)
    setup.prepare(checkout, LIST)
    (checkout / LIST).write_text((checkout / LIST).read_text() + "# another version\n")
    with (
        running(checkout, str(checkout / "caisson"), "run", "repository", "brief") as pid,
        pytest.raises(setup.SetupProblem, match=rf"\./caisson run \(pid {pid}\)"),
    ):
        setup.prepare(checkout, LIST)


@pytest.mark.slow
def test_a_command_whose_product_was_stopped_just_now_is_given_the_time_to_end(checkout):
    """``./caisson stop && ./caisson up`` while ``up`` ends in another terminal."""
    setup.prepare(checkout, LIST)
    (checkout / LIST).write_text((checkout / LIST).read_text() + "# another version\n")
    with running(checkout, str(checkout / "caisson"), "up"):
        begun = prepared(checkout)
        with pytest.raises(subprocess.TimeoutExpired):
            begun.wait(timeout=2)
    said = begun.communicate(timeout=90)[1]
    assert begun.returncode == 0, said


@pytest.mark.slow
def test_what_the_suite_needs_is_added_beside_a_running_product_of_the_same_pins(checkout):
    setup.prepare(checkout, LIST)
    (checkout / setup.SUITE).write_text((checkout / LIST).read_text() + "# and more\n")
    with running(checkout, *PRODUCT):
        setup.prepare(checkout, setup.SUITE)
    assert setup.Environment(checkout / ".venv").holds(checkout / setup.SUITE)


@pytest.mark.slow
def test_what_was_added_by_half_is_not_made_anew_under_a_running_product(checkout):
    """All packages would be installed again, those of the product too."""
    setup.prepare(checkout, LIST)
    environment = setup.Environment(checkout / ".venv")
    environment.unfinished.touch()
    (checkout / setup.SUITE).write_text((checkout / LIST).read_text() + "# and more\n")
    with running(checkout, *PRODUCT), pytest.raises(setup.SetupProblem, match="the product of"):
        setup.prepare(checkout, setup.SUITE)
    assert environment.is_whole()
    setup.prepare(checkout, setup.SUITE)
    assert not environment.unfinished.exists()


def test_the_suite_needs_what_the_product_needs_as_pinned_there():
    """Else setting up the suite would change packages under a running product."""
    product, suite = (set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), re.M)) for name in (LIST, setup.SUITE))
    assert product
    assert not product - suite
