"""Agents and repositories that attack the supervisor: nothing of theirs runs in our processes or leaves their tree."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_supervisor import isolation
from sandbox_supervisor.log import Log
from sandbox_supervisor.protocol.events import Envelope, EventKind
from sandbox_supervisor.protocol.flow import ArtefactRule, Merge, Node, NodeKind, OnConflict
from sandbox_supervisor.protocol.spec import Limits
from sandbox_supervisor.standalone import bundled_bwrap
from tests.supervisor.engine.scenario import BRANCH, Sandbox, agent, command, deliver, keeping


@contextmanager
def opened(box: Sandbox, *, attempt_log: int = 1024 * 1024) -> Iterator[Log]:
    """Open the log that an ended supervisor left."""
    log = Log.open(box.folder / "log", attempt_log=attempt_log)
    try:
        yield log
    finally:
        log.close_now()


def events_of(log: Log, kind: EventKind) -> list[Envelope]:
    return [event for event in asyncio.run(log.events(0, 500)) if event.kind == kind]


TRAPS = """
trap_script="$HOME/trap.sh"
printf '#!/bin/sh\\ntouch {sentinel}.$1\\ncat\\n' > "$trap_script"; chmod +x "$trap_script"
git config core.fsmonitor "$trap_script fsmonitor"
git config core.hooksPath "$PWD/hooks"
git config filter.evil.clean "$trap_script clean"
git config filter.evil.smudge "$trap_script smudge"
git config filter.evil.process "$trap_script process"
git config diff.evil.textconv "$trap_script textconv"
git config diff.evil.command "$trap_script diff"
git config diff.external "$trap_script external"
git config merge.evil.driver "$trap_script merge"
git config commit.gpgsign true
git config gpg.program "$trap_script gpg"
git config core.editor "$trap_script editor"
git config core.sshCommand "$trap_script ssh"
git config core.alternateRefsCommand "$trap_script alternates"
git config uploadpack.packObjectsHook "$trap_script packobjects"
mkdir -p hooks .git/hooks
for hook in pre-commit commit-msg post-commit post-checkout post-index-change reference-transaction pre-push; do
  printf '#!/bin/sh\\ntouch {sentinel}.hook\\n' > hooks/$hook; cp hooks/$hook .git/hooks/$hook 2>/dev/null
  chmod +x hooks/$hook .git/hooks/$hook
done
printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes
echo 2 > value.txt
"""


def sentinels(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.glob("sentinel*"))


def test_hooks_filters_and_configured_programs_of_a_tree_never_run(sandbox, tmp_path):
    script = TRAPS.replace("{sentinel}", str(tmp_path / "sentinel"))
    box = sandbox([keeping("evil", script), keeping("after", "echo 3 > other.txt", "evil"), deliver("after")])
    ran = box.run()
    assert ran.code == 0, "\n".join(ran.lines)
    assert sentinels(tmp_path / "x") == []
    assert box.file(BRANCH, "value.txt") == "2"


def test_a_repository_with_hostile_attributes_and_hooks_runs_nothing(sandbox, tmp_path):
    files = {
        ".gitattributes": "* filter=evil diff=evil merge=evil\n",
        ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/never"\n',
        "value.txt": "1\n",
    }
    box = sandbox([keeping("work", "echo 2 > value.txt"), deliver("work")], files=files)
    assert box.run().code == 0
    assert box.file(BRANCH, "value.txt") == "2"


def test_an_agent_cannot_move_a_ref_or_config_of_the_shared_repository(sandbox):
    script = """
    set +e; alternate=$(cat .git/objects/info/alternates); shared=$(dirname "$alternate")
    git -C "$shared" update-ref refs/heads/planted HEAD 2>/dev/null; touch "$shared/planted" 2>/dev/null
    git push -q "$shared" HEAD:refs/heads/pushed 2>/dev/null; echo 2 > value.txt
    """
    box = sandbox([keeping("evil", script)])
    ran = box.run("--isolation", "auto")
    if isolation.choose("auto", bwrap=bundled_bwrap()).tier is isolation.Tier.NONE:
        pytest.skip("bubblewrap does not work here: without it all attempts share one user with the supervisor")
    assert ran.code == 0
    assert box.git("for-each-ref", "refs/heads") == ""
    assert not (box.repo / "planted").exists()


def test_links_and_devices_are_no_artefacts(sandbox, tmp_path):
    (tmp_path / "secret").write_text("secret")
    rules = (ArtefactRule(path="out/*", name="out"),)
    script = f"mkdir out; ln -s {tmp_path}/secret out/link; mkfifo out/pipe"
    box = sandbox([command("evil", script, artefacts=rules)])
    ran = box.run()
    assert ran.said("artefact_missing")
    assert not any(path.read_bytes() == b"secret" for path in (box.folder / "log" / "artefacts").iterdir())


def test_artefacts_beyond_the_quota_are_refused(sandbox):
    script = "head -c 3000 /dev/zero > $CAISSON_ARTEFACTS/big; echo small > $CAISSON_ARTEFACTS/small"
    box = sandbox([command("work", script)], limits=Limits(artefact_quota=2000))
    box.run()
    assert sum(path.stat().st_size for path in (box.folder / "log" / "artefacts").iterdir()) <= 2000


def test_a_flood_is_kept_with_its_head_and_tail_and_the_gap_is_said_once(sandbox):
    limit = 1024 * 1024
    script = "echo FIRST; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo LAST"
    box = sandbox([command("flood", script)], limits=Limits(attempt_log=limit))
    assert box.run().code == 0
    kept = sum(path.stat().st_size for path in (box.folder / "log" / "outputs").iterdir())
    assert kept <= limit + 64 * 1024
    with opened(box, attempt_log=limit) as log:
        head = log.outputs.read("flood.1.1", "stdout", 0, 100)
        assert head.data.startswith(b"FIRST\nxxx")
        assert log.outputs.read("flood.1.1", "stdout", head.size - 6, 100).data == b"\nLAST\n"
        told = [event.data for event in events_of(log, EventKind.OUTPUT_TRUNCATED)]
        assert [data["dropped_bytes"] for data in told] == [head.dropped]
        assert head.dropped > 4_000_000


def test_broken_text_and_control_characters_are_carried_without_harm(sandbox):
    box = sandbox([command("noise", "printf '\\377\\376 \\033[2J \\000 end\\n'; printf 'half \\342\\202'")])
    ran = box.run()
    assert ran.code == 0
    assert box.verify().startswith("sound")
    with opened(box) as log:
        whole = log.outputs.read("noise.1.1", "stdout", 0, 100).data
        assert whole == b"\xff\xfe \x1b[2J \x00 end\nhalf \xe2\x82"
        text = "".join(event.data["text"] for event in events_of(log, EventKind.OUTPUT))
        assert text == "\ufffd\ufffd \x1b[2J \x00 end\nhalf \ufffd"


def test_a_conflict_in_a_file_whose_name_is_no_text_is_still_named_as_one(sandbox):
    made = "echo {0} > $(printf 'odd-\\377')"
    ask = Merge(on_conflict=OnConflict.ASK)
    box = sandbox(
        [
            keeping("one", made.format(1)),
            keeping("two", made.format(2)),
            command("both", "true", "one", "two"),
            Node(key="settled", kind=NodeKind.MERGE, needs=("one", "two"), merge=ask),
        ]
    )
    ran = box.run()
    assert ran.attempts("both") == {"both.1.1": "failed"}
    assert ran.said("[merge_conflict: The work of one, two conflicts in odd-\ufffd.")
    assert ran.outcome("settled") == "succeeded"
    assert box.verify().startswith("sound")


def test_a_result_with_half_a_character_is_no_json(sandbox):
    box = sandbox([command("half", """printf '{"a": "\\\\ud800"}' > "$CAISSON_RESULT\"""")])
    ran = box.run()
    assert ran.attempts("half") == {"half.1.1": "failed"}
    assert ran.said("result_malformed")


@pytest.mark.parametrize("depth", [65, 985, 20_000])
def test_a_result_that_is_nested_too_deep_fails_its_node_and_nothing_else(sandbox, depth):
    """At some depths a value can be read but not stored, or stored but not read again."""
    script = f"""printf '{{"a":'; printf '[%.0s' $(seq {depth}); printf ']%.0s' $(seq {depth}); printf '}}'"""
    box = sandbox([command("deep", f'{{ {script}; }} > "$CAISSON_RESULT"'), command("other", "true")])
    ran = box.run()
    assert ran.attempts("deep") == {"deep.1.1": "failed"}
    assert ran.said("result_malformed")
    assert ran.outcome("other") == "succeeded"
    assert box.verify().startswith("sound")


def test_an_agent_that_sends_nonsense_crashes_or_floods_only_fails_its_own_attempt(sandbox):
    box = sandbox(
        [
            agent("crash", [{"crash": 7}]),
            agent("nonsense", [{"bad_json": "{{{"}, {"say": "x"}]),
            agent("flood", [{"flood": {"bytes": 3_000_000, "stream": "stderr"}}, {"say": "Done."}]),
        ]
    )
    ran = box.run()
    assert ran.outcome("crash") == "failed"
    assert ran.outcome("nonsense") == "failed"
    assert ran.outcome("flood") == "succeeded"
    assert box.verify().startswith("sound")
    assert box.wait_empty() == []


def test_a_result_file_that_is_a_link_is_not_followed(sandbox, tmp_path):
    (tmp_path / "secret.json").write_text('{"secret": true}')
    script = f'rm -f "$CAISSON_RESULT"; ln -s {tmp_path}/secret.json "$CAISSON_RESULT"'
    box = sandbox([command("evil", script, options={"result": {"type": "object", "required": ["secret"]}})])
    ran = box.run()
    assert ran.outcome("evil") == "failed"


def test_a_tree_that_was_removed_under_a_running_attempt_fails_only_that_attempt(sandbox):
    box = sandbox([keeping("gone", 'tree="$PWD"; cd /; rm -rf "$tree"'), command("other", "true")])
    ran = box.run()
    assert ran.outcome("gone") == "failed"
    assert ran.outcome("other") == "succeeded"
    assert box.verify().startswith("sound")
