"""Files are read without following links; artefacts are regular files within a quota."""

import os
import socket
import time
from hashlib import sha256
from pathlib import Path

import pytest

from sandbox_supervisor.runner import artefacts, files
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import FoundArtefact, RunnerRefused
from tests.supervisor.runner.stage import ATTEMPT, Stage

QUOTA = 10_000


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "node.1.1")
    for path in folder.shown:
        path.mkdir(parents=True)
    (folder.tree / "dist").mkdir()
    (folder.tree / "dist/app.whl").write_bytes(b"wheel")
    (folder.tree / "readme.md").write_text("hello")
    return folder


def refusal(call, *arguments) -> str:
    with pytest.raises(RunnerRefused) as refused:
        call(*arguments)
    return refused.value.code


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_folder_is_listed_sorted_with_types_sizes_and_modes(folder: Folder):
    (folder.tree / "run.sh").touch(mode=0o755)
    (folder.tree / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder.tree / "pipe")
    assert files.list_folder(folder.tree, "") == [
        {"name": "dist", "type": "dir", "size": 0, "executable": False},
        {"name": "link", "type": "link", "size": 0, "executable": False},
        {"name": "pipe", "type": "other", "size": 0, "executable": False},
        {"name": "readme.md", "type": "file", "size": 5, "executable": False},
        {"name": "run.sh", "type": "file", "size": 0, "executable": True},
    ]


def test_a_listing_is_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LIST_LIMIT", 5)
    for number in range(20):
        (folder.tree / f"f{number}").touch()
    assert len(files.list_folder(folder.tree, ".")) == 5


def test_a_range_is_read_with_the_whole_size(folder: Folder):
    assert files.read(folder.tree, "readme.md", 1, 3) == (b"ell", 5)
    assert files.read(folder.tree, "readme.md", 99, 3) == (b"", 5)


@pytest.mark.parametrize("path", ["../x", "dist/../../x", "/etc/passwd", "a\0b", "..", "x" * 5000])
def test_paths_that_lead_out_are_refused(folder: Folder, path: str):
    assert refusal(files.read, folder.tree, path, 0, 1) == "bad_path"
    assert refusal(files.list_folder, folder.tree, path) == "bad_path"


@pytest.mark.parametrize("target", ["/etc/passwd", "readme.md", "nowhere"])
def test_a_link_is_not_read_wherever_it_leads(folder: Folder, target: str):
    (folder.tree / "link").symlink_to(target)
    assert refusal(files.read, folder.tree, "link", 0, 1) == "refused"


def test_a_link_among_the_folders_of_a_path_is_not_followed(folder: Folder):
    (folder.tree / "etc").symlink_to("/etc")
    assert refusal(files.read, folder.tree, "etc/passwd", 0, 1) == "refused"
    assert refusal(files.list_folder, folder.tree, "etc") == "refused"


def test_a_tree_that_was_replaced_by_a_link_is_not_read(folder: Folder):
    folder.tree.rename(folder.path / "moved")
    folder.tree.symlink_to("/etc")
    with pytest.raises(OSError, match="tree"):
        files.read(folder.tree, "passwd", 0, 1)


def test_pipes_devices_and_sockets_are_refused_without_waiting(folder: Folder):
    os.mkfifo(folder.tree / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.open(folder.tree, os.O_PATH)
        sock.bind(f"/proc/self/fd/{here}/sock")
        os.close(here)
        assert refusal(files.read, folder.tree, "pipe", 0, 1) == "not_a_file"
        assert refusal(files.read, folder.tree, "sock", 0, 1) == "refused"


def test_a_folder_or_nothing_is_not_a_file(folder: Folder):
    assert refusal(files.read, folder.tree, "dist", 0, 1) == "not_a_file"
    assert refusal(files.read, folder.tree, "", 0, 1) == "not_a_file"
    assert refusal(files.read, folder.tree, "gone", 0, 1) == "not_found"


async def test_files_of_a_kept_tree_are_read_over_the_line(on_stage: Stage):
    await on_stage.sh(
        "mkdir sub; echo ignored > .gitignore; head -c 2000000 /dev/zero > ignored; ln -s /etc/passwd out"
    )
    names = [entry["name"] for entry in await on_stage.link.list_files(ATTEMPT, "")]
    assert names == [".git", ".gitignore", "ignored", "out", "readme.md", "sub"]
    data, size = await on_stage.link.read_file(ATTEMPT, "ignored", 0, 10**9)
    assert (len(data), size) == (1024 * 1024, 2_000_000)
    with pytest.raises(RunnerRefused):
        await on_stage.link.read_file(ATTEMPT, "out", 0, 10)
    with pytest.raises(RunnerRefused):
        await on_stage.link.read_file("../../spec.1.1", "x", 0, 10)


# --- artefacts -------------------------------------------------------------------------------------------------------


def names(found: list[FoundArtefact]) -> list[tuple[str, str]]:
    return [(artefact.name, artefact.path) for artefact in found]


def test_declared_paths_and_the_artefact_folder_are_found(folder: Folder):
    (folder.artefacts / "deep").mkdir()
    (folder.artefacts / "deep/report.html").write_text("<p>")
    found = artefacts.find(folder, (("dist/*.whl", "wheel"),), QUOTA)
    assert names(found) == [("wheel", "tree/dist/app.whl"), ("deep/report.html", "artefacts/deep/report.html")]
    assert found[0].digest == "sha256:" + sha256(b"wheel").hexdigest()
    assert (found[0].size, found[1].media_type) == (5, "text/html")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("dist/*.whl", ["tree/dist/app.whl"]),
        ("**/*.whl", ["tree/dist/app.whl", "tree/top.whl"]),
        ("*.whl", ["tree/top.whl"]),
        ("dist/**", ["tree/dist/app.whl", "tree/dist/sub/x"]),
        ("dist/???.whl", ["tree/dist/app.whl"]),
        ("readme.md", ["tree/readme.md"]),
        ("nothing", []),
        ("dist", []),
        ("read[m]e.md", []),
        ("**/sub/**", ["tree/dist/sub/x"]),
        ("**/**/x", ["tree/dist/sub/x"]),
        ("d*t/s*b/*", ["tree/dist/sub/x"]),
        ("*/x", []),
        ("**", ["tree/dist/app.whl", "tree/dist/sub/x", "tree/readme.md", "tree/top.whl"]),
    ],
)
def test_globs_match_whole_paths(folder: Folder, pattern: str, matches: list[str]):
    (folder.tree / "top.whl").touch()
    (folder.tree / "dist/sub").mkdir()
    (folder.tree / "dist/sub/x").touch()
    assert sorted(path for _, path in names(artefacts.find(folder, ((pattern, "n"),), QUOTA))) == matches


@pytest.mark.parametrize(
    ("pattern", "path"), [("*a" * 40 + "*b", "a" * 250), ("**/a/" * 20 + "b", "/".join(["a"] * 60))]
)
def test_no_pattern_and_no_name_take_time_without_end(pattern: str, path: str):
    began = time.process_time()
    assert not artefacts.matches(pattern, path)
    assert time.process_time() - began < 1


def test_a_folder_without_end_is_not_read_to_its_end(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(artefacts, "WALK_LIMIT", 5)
    for number in range(20):
        (folder.artefacts / str(number)).touch()
    assert refusal(artefacts.find, folder, (), QUOTA) == "too_many_files"


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "dist/../../*"])
def test_globs_that_lead_out_are_refused(folder: Folder, pattern: str):
    assert refusal(artefacts.find, folder, ((pattern, "n"),), QUOTA) == "bad_path"


def test_what_is_no_regular_file_is_named_and_not_read(folder: Folder):
    (folder.artefacts / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder.artefacts / "pipe")
    found = {artefact.name: artefact for artefact in artefacts.find(folder, (), QUOTA)}
    assert "link" in found["link"].refused
    assert "regular" in found["pipe"].refused
    assert found["link"].digest == found["pipe"].digest == ""


def test_a_linked_folder_is_not_entered(folder: Folder):
    (folder.artefacts / "etc").symlink_to("/etc")
    found = artefacts.find(folder, (("**", "n"),), QUOTA)
    assert [artefact.path for artefact in found if "etc" in artefact.path] == ["artefacts/etc"]
    assert refusal(artefacts.read, folder, "artefacts/etc/passwd", 0, 10) == "refused"


def test_files_beyond_the_quota_are_named_and_smaller_ones_still_kept(folder: Folder):
    for name, size in (("a", 60), ("b", 60), ("c", 40)):
        (folder.artefacts / name).write_bytes(b"x" * size)
    found = artefacts.find(folder, (), 100)
    assert [(artefact.name, bool(artefact.refused)) for artefact in found] == [("a", False), ("b", True), ("c", False)]
    assert "quota" in found[1].refused


def test_the_number_of_artefacts_is_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(artefacts, "COUNT_LIMIT", 3)
    for number in range(10):
        (folder.artefacts / str(number)).touch()
    found = artefacts.find(folder, (), QUOTA)
    assert [bool(artefact.refused) for artefact in found] == [False, False, False, True]


def test_a_file_found_twice_is_one_artefact(folder: Folder):
    found = artefacts.find(folder, (("dist/*", "first"), ("**/*.whl", "second")), QUOTA)
    assert names(found) == [("first", "tree/dist/app.whl")]


def test_the_trees_git_folder_is_never_an_artefact(folder: Folder):
    (folder.tree / ".git").mkdir()
    (folder.tree / ".git/config").write_text("x")
    found = artefacts.find(folder, (("**/config", "n"), ("**", "m")), QUOTA)
    assert {artefact.path for artefact in found} == {"tree/dist/app.whl", "tree/readme.md"}


def test_a_name_that_is_not_utf8_is_refused_readably(folder: Folder):
    Path(os.fsdecode(os.fsencode(folder.artefacts) + b"/\xff.bin")).touch()
    (found,) = artefacts.find(folder, (), QUOTA)
    assert "UTF-8" in found.refused
    assert found.path == "artefacts/\ufffd.bin"


@pytest.mark.parametrize("path", ["home/x", "git/config", "../other/tree/x", "", "/etc/passwd"])
def test_only_tree_and_artefact_folder_are_read_as_artefacts(folder: Folder, path: str):
    assert refusal(artefacts.read, folder, path, 0, 10) == "bad_path"


async def test_artefacts_travel_over_the_line_in_pieces(bare_stage: Stage):
    await bare_stage.sh('head -c 700000 /dev/urandom > "$CAISSON_ARTEFACTS/big"')
    (found,) = await bare_stage.link.artefacts(ATTEMPT, (), 10**6)
    pieces = [piece async for piece in bare_stage.link.artefact_bytes(ATTEMPT, found.path)]
    assert len(pieces) == 3
    assert "sha256:" + sha256(b"".join(pieces)).hexdigest() == found.digest
