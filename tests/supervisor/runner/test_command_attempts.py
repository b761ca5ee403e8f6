"""What a command attempt gives back, and what it is given."""

import subprocess
from pathlib import Path

import pytest

from sandbox_supervisor.runner.link import RunnerRefused, Spawn, SpawnKind
from tests.supervisor.runner.stage import ATTEMPT, Stage, git, shell, stage


async def test_exit_code_zero_is_success(on_stage: Stage):
    ran = await on_stage.sh("echo out; echo err >&2")
    assert ran.exit["outcome"] == "ok"
    assert ran.exit["exit_code"] == 0
    assert ran.output() == b"out\n"
    assert ran.output("stderr") == b"err\n"


@pytest.mark.parametrize("code", [1, 2, 126, 255])
async def test_another_exit_code_is_a_failed_check(bare_stage: Stage, code: int):
    ran = await bare_stage.sh(f"exit {code}")
    assert (ran.exit["outcome"], ran.exit["failure_class"], ran.exit["code"]) == ("failed", "check_failed", "exit_code")
    assert ran.exit["exit_code"] == code


async def test_a_program_that_does_not_exist_is_a_failed_check_with_its_own_code(on_stage: Stage):
    await on_stage.begin(Spawn(kind=SpawnKind.COMMAND, argv=("no-such-program", "x")))
    ran = await on_stage.rest()
    assert (ran.exit["failure_class"], ran.exit["code"], ran.exit["exit_code"]) == ("check_failed", "not_found", 127)
    assert b"no-such-program" in ran.output("stderr")


async def test_a_command_killed_from_outside_is_an_infra_failure(on_stage: Stage):
    ran = await on_stage.sh("kill -KILL $$")
    assert (ran.exit["failure_class"], ran.exit["code"]) == ("infra", "killed")


async def test_arguments_arrive_as_they_were_given(on_stage: Stage):
    words = ("printf", "%s|", "a b", "$HOME", "'", '"', "ü\n", "--", "-n")
    await on_stage.begin(Spawn(kind=SpawnKind.COMMAND, argv=words))
    assert (await on_stage.rest()).output().decode() == "a b|$HOME|'|\"|ü\n|--|-n|"


async def test_output_is_passed_on_byte_for_byte(on_stage: Stage):
    nasty = b"\xff\xfe\x1b[31m\x1b]0;title\x07\x00\r\n\xed\xa0\x80"
    escaped = "".join(f"\\{byte:03o}" for byte in nasty)
    ran = await on_stage.sh(f"printf '{escaped}'")
    assert ran.output() == nasty


async def test_the_environment_is_an_allow_list(on_stage: Stage):
    ran = await on_stage.sh("env -0", PROJECT="demo")
    names = {entry.partition(b"=")[0].decode() for entry in ran.output().split(b"\0") if entry}
    assert {"HOME", "TMPDIR", "CAISSON_ARTEFACTS", "CAISSON_RESULT", "CAISSON_ATTEMPT", "PATH", "LANG"} <= names
    assert "PROJECT" in names
    assert not names & {"SECRET", "CAISSON_RUNNER_NONCE", "PYTHONPATH", "VIRTUAL_ENV"}


async def test_the_environment_names_the_attempts_own_folders(on_stage: Stage):
    ran = await on_stage.sh('cd; pwd; cd "$TMPDIR"; pwd; cd "$CAISSON_ARTEFACTS"; pwd; echo "$LANG"', HOME="/nowhere")
    folder = on_stage.attempt()
    assert ran.output().decode().split() == [str(folder.home), str(folder.tmp), str(folder.artefacts), "C.UTF-8"]


async def test_a_command_starts_in_its_tree_at_the_base_commit(on_stage: Stage):
    ran = await on_stage.sh("pwd; cat readme.md; git rev-parse HEAD; git status --porcelain")
    assert ran.output().decode().split() == [str(on_stage.attempt().tree), "hello", on_stage.base]


async def test_a_command_can_commit_without_setting_up_an_identity(on_stage: Stage):
    ran = await on_stage.sh("echo more >> readme.md && git commit -qam 'By the command' && git log -1 --format=%s")
    assert ran.output() == b"By the command\n"


async def test_the_result_file_is_read_back(on_stage: Stage):
    await on_stage.sh("""echo '{"passed": 3}' > "$CAISSON_RESULT" """)
    assert await on_stage.link.result(ATTEMPT) == b'{"passed": 3}\n'


async def test_no_result_file_is_no_result(bare_stage: Stage):
    await bare_stage.sh("true")
    assert await bare_stage.link.result(ATTEMPT) is None


async def test_a_result_that_is_a_link_is_refused(bare_stage: Stage):
    await bare_stage.sh('ln -s /etc/passwd "$CAISSON_RESULT"')
    with pytest.raises(RunnerRefused, match="link"):
        await bare_stage.link.result(ATTEMPT)


async def test_a_result_of_more_than_64_kib_is_refused(bare_stage: Stage):
    await bare_stage.sh('head -c 65537 /dev/zero > "$CAISSON_RESULT"')
    with pytest.raises(RunnerRefused) as refused:
        await bare_stage.link.result(ATTEMPT)
    assert refused.value.code == "result_too_big"


async def test_commands_of_several_attempts_run_side_by_side(bare_stage: Stage):
    for number in (1, 2, 3):
        there = " -a ".join(f"-e ../../meet{other}" for other in (1, 2, 3))
        meet = f"touch ../../meet{number}; while ! [ {there} ]; do sleep 0.01; done"
        await bare_stage.begin(shell(meet), f"node.1.{number}")
    for number in (1, 2, 3):
        assert (await bare_stage.rest(f"node.1.{number}")).exit["outcome"] == "ok"


async def test_a_command_without_words_is_refused(bare_stage: Stage):
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    with pytest.raises(RunnerRefused) as refused:
        await bare_stage.link.spawn(ATTEMPT, Spawn(kind=SpawnKind.COMMAND))
    assert refused.value.code == "bad_command"


async def test_an_attempt_has_one_process_tree_at_a_time(bare_stage: Stage):
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    await bare_stage.link.spawn(ATTEMPT, shell("true"))
    with pytest.raises(RunnerRefused) as refused:
        await bare_stage.link.spawn(ATTEMPT, shell("true"))
    assert refused.value.code == "already_spawned"
    await bare_stage.link.stop(ATTEMPT, kill=True)


async def test_go_is_given_once(bare_stage: Stage):
    await bare_stage.begin(shell("sleep 30"))
    with pytest.raises(RunnerRefused) as refused:
        await bare_stage.link.go(ATTEMPT)
    assert refused.value.code == "not_waiting"
    await bare_stage.link.stop(ATTEMPT, kill=True)


async def test_calls_about_attempts_that_are_not_there_are_refused(bare_stage: Stage):
    for call in (bare_stage.link.go("ghost.1.1"), bare_stage.link.stop("ghost.1.1", kill=True)):
        with pytest.raises(RunnerRefused) as refused:
            await call
        assert refused.value.code == "unknown_attempt"


async def test_standard_input_is_empty(bare_stage: Stage):
    ran = await bare_stage.sh("cat; echo end")
    assert ran.output() == b"end\n"


async def test_a_command_has_no_controlling_terminal(bare_stage: Stage):
    ran = await bare_stage.sh("(: < /dev/tty) 2>/dev/null && echo terminal; true")
    assert ran.output() == b""


async def test_a_memory_limit_ends_only_what_exceeds_it(tmp_path: Path):
    async with stage(tmp_path, "none", None, "--memory", str(256 * 1024 * 1024)) as limited:
        big, small = (f"python3 -c 'bytearray({mib} * 2**20)'" for mib in (600, 1))
        ran = await limited.sh(f"{big} 2>&1 | tail -1; {small} && echo small")
        assert ran.output().split() == [b"MemoryError", b"small"]


async def test_work_survives_and_can_be_committed_after_the_end(on_stage: Stage):
    await on_stage.sh("mkdir -p new; echo text > new/file; rm readme.md")
    made = await on_stage.link.commit(ATTEMPT, message="Kept", base_commit=on_stage.base)
    repo = on_stage.folder / "repo"
    index_pack = ["git", "index-pack", "--strict", "--stdin"]
    subprocess.run(index_pack, cwd=repo, input=made.pack, check=True, capture_output=True)
    assert git("ls-tree", "-r", "--name-only", made.commit, cwd=repo).split() == ["new/file"]
    assert git("rev-parse", f"{made.commit}^", cwd=repo) == on_stage.base
