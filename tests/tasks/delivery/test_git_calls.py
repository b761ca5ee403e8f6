"""A call of Git is bounded in what it may say and for how long, and leaves no process behind."""

import time
from pathlib import Path

import pytest

from tasks_app import git


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch):
    """Put a script in the place of Git."""

    def put(script: str) -> None:
        path = tmp_path / "git"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_endless_complaints_fill_no_disk_and_their_end_is_kept(pretend):
    pretend("ulimit -f 0; yes complaint | head -c 50000000 >&2 || exit 9; echo the last word >&2; exit 3")
    done = git.run("fetch", accept=(3,))
    assert len(done.stderr) <= git.COMPLAINT_LIMIT
    assert done.stderr.endswith("the last word\n")


def test_more_output_than_allowed_ends_the_call(pretend):
    pretend("yes")
    with pytest.raises(git.GitFailed) as failure:
        git.run("ls-remote", limit=1_000_000)
    assert failure.value.code == "too_big"


@pytest.mark.parametrize("script", ["sleep 60", "yes >&2", "exec >/dev/null; sleep 60", "exec 2>/dev/null; sleep 60"])
def test_a_call_that_does_not_end_is_ended(pretend, script):
    pretend(script)
    with pytest.raises(git.GitFailed) as failure:
        git.run("-c", "a=b", "fetch", timeout=0.5)
    assert failure.value.code == "timeout"
    assert "git fetch did not end within 0.5 s" in failure.value.message


def test_a_helper_that_outlives_git_is_not_waited_for_and_ended(pretend):
    pretend("sleep 60 >/dev/null & echo $!; echo done >&2")
    began = time.monotonic()
    done = git.run("fetch", timeout=50)
    assert time.monotonic() - began < 25
    assert done.stderr == "done\n"
    deadline = time.monotonic() + 60
    while alive(done.text):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_given_as_input_and_what_comes_out_is_whole(pretend, tmp_path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "in").write_bytes(data)
    pretend("cat; echo some words >&2")
    with (tmp_path / "in").open("rb") as file:
        done = git.run("anything", stdin=file)
    assert (done.stdout, done.stderr) == (data, "some words\n")
