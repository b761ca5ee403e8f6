"""Turn what stands in an attempt's tree into a Git tree, a commit, a pack, a diff — by our own Git directory and index.

Git never reads the attempt's ``.git`` here, so no config, hook, filter or fsmonitor of the agent's can run. Gitlinks
stay as the base has them and nested repositories are left out: looking into one would obey its config.
"""

import math
import os
import shutil
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_supervisor import git
from sandbox_supervisor.protocol.git_rules import valid_commit
from sandbox_supervisor.runner import theirs
from sandbox_supervisor.runner.children import children
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused
from sandbox_supervisor.runner.trees import INDEX, restore

FILE_LIMIT = 512 * 1024 * 1024
COUNT_LIMIT = 500_000
DIFF_LIMIT = 8 * 1024 * 1024
PACK_LIMIT = 512 * 1024 * 1024
LISTING_LIMIT = 256 * 1024 * 1024
TIMEOUT = 600.0
LIVE_TIME = (
    60.0  # for a whole diff while the agent may still change files under us: the end of its attempt waits for it
)
_CUT = b"\n... the diff is longer than 8 MiB and ends here\n"
_GITLINK = b"160000"
_SLOW_READERS = ("-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false")
_TOO_LONG = -25  # by SIGXFSZ


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    commit: str
    tree: str
    changed: bool
    pack_size: int


@dataclass(slots=True)
class _Ours:
    """Our Git directory, looking at the attempt's files through an index of its own."""

    folder: Folder
    repo: Path
    ends_at: float = math.inf  # by ``time.monotonic``
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env["GIT_INDEX_FILE"] = str(self.folder.git / "index")
        if objects := theirs.objects_of(self.folder.tree, self.repo):
            quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
            self.env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{quoted}"'

    def run(self, *args: str, data: bytes | None = None, tree: bool = False, **options: object) -> git.Completed:
        settings = {"timeout": min(TIMEOUT, self.ends_at - time.monotonic()), "env": self.env} | options
        place = self.folder.tree if tree else None
        return git.run(self.folder.git, *_SLOW_READERS, *args, input=data, work_tree=place, **settings)  # type: ignore[arg-type]


def commit(folder: Folder, repo: Path, message: str, base_commit: str) -> Made:
    """Commit the tree on top of the attempt's HEAD (on the base if that does not descend from it); pack what is new.

    The same files give the same commit: it is dated like its parent.
    """
    with children.call():
        ours = _ours(folder, repo, base_commit)
        tree, parent = _tree(ours), _head(ours, base_commit)
        made = parent
        if ours.run("rev-parse", f"{parent}^{{tree}}").text != tree:
            when = git.dated(int(ours.run("show", "-s", "--format=%ct", parent).text))
            text = message.replace("\0", "").encode("utf-8", "replace")
            made = ours.run("commit-tree", tree, "-p", parent, "-F", "-", data=text, env=ours.env | when).text
        return Made(commit=made, tree=tree, changed=made != base_commit, pack_size=_pack(ours, made, base_commit))


def changed_since_birth(folder: Folder, repo: Path) -> bool:
    """Say whether the attempt's files or its HEAD differ from what it was given."""
    base_commit = (folder.git / "refs" / "caisson" / "base").read_text().strip()
    with children.call():
        ours = _ours(folder, repo, base_commit)
        return _head(ours, base_commit) != base_commit or _tree(ours) != _tree_of(ours, base_commit)


def diff(folder: Folder, repo: Path, base_commit: str) -> int:
    """Write the unified diff of the files against ``base_commit``; give its size, at most 8 MiB and a last line."""
    path = folder.git / "diff"
    path.unlink(missing_ok=True)
    with children.call():
        ours = _ours(folder, repo, base_commit, ends_at=time.monotonic() + LIVE_TIME)
        ours.run(
            "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "-M", f"--output={path}",
            base_commit, _tree(ours), "--", prefix=_bounded(DIFF_LIMIT), accept=(0, _TOO_LONG),
        )  # fmt: skip
    size = path.stat().st_size if path.exists() else 0
    if size > DIFF_LIMIT:
        with path.open("r+b") as file:
            file.truncate(DIFF_LIMIT)
            file.seek(0, os.SEEK_END)
            file.write(_CUT)
        size = DIFF_LIMIT + len(_CUT)
    return size


def _bounded(size: int) -> tuple[str, ...]:
    """Give what stands before a command whose files may not grow (much) beyond ``size`` bytes."""
    return ("/bin/sh", "-c", f'ulimit -f {size // 512 + 2048}; exec "$@"', "sh")


def pack_bytes(folder: Folder, offset: int, length: int) -> bytes:
    return _bytes(folder.git / "pack" / "out.pack", offset, length)


def diff_bytes(folder: Folder, offset: int, length: int) -> bytes:
    return _bytes(folder.git / "diff", offset, length)


def _bytes(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, max(0, offset))


def _ours(folder: Folder, repo: Path, base_commit: str, *, ends_at: float = math.inf) -> _Ours:
    if not valid_commit(base_commit):
        raise RunnerRefused("bad_commit", f"{base_commit[:80]!r} is not a full commit id")
    restore(folder, repo, base_commit)
    return _Ours(folder, repo, ends_at)


def _head(ours: _Ours, base_commit: str) -> str:
    """Give the attempt's HEAD if it is a commit that descends from the base, else the base."""
    head = theirs.head_of(ours.folder.tree)
    if head is None or head == base_commit:
        return base_commit
    descends = ours.run("merge-base", "--is-ancestor", base_commit, head, accept=(0, 1, 128)).returncode == 0
    return head if descends else base_commit


def _tree_of(ours: _Ours, commit_id: str) -> str:
    return ours.run("rev-parse", f"{commit_id}^{{tree}}").text


# --- files → tree ----------------------------------------------------------------------------------------------------


def _tree(ours: _Ours) -> str:
    """Write a Git tree of the files: tracked and untracked, not the ignored ones."""
    # With its time: of a file no older than its index Git reads the content; others it takes to be unchanged if size
    # and the second of their last change are. Under a newer time an edit within the second of the checkout is lost.
    shutil.copy2(ours.folder.git / INDEX, ours.env["GIT_INDEX_FILE"])
    listed = _listed(ours, "--stage")
    tracked = [path for mode, _, path in (_staged(line) for line in listed if line) if mode != _GITLINK]
    others = _listed(ours, "--others", "--exclude-standard")
    present, missing = _sorted_out(ours.folder.tree, tracked, [path for path in others if path and path[-1:] != b"/"])
    if missing:
        ours.run("update-index", "--force-remove", "-z", "--stdin", data=_joined(missing), tree=True)
    if present:
        ours.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", data=_joined(present), tree=True)
    return ours.run("write-tree").text


def _listed(ours: _Ours, *options: str) -> list[bytes]:
    """Raises RunnerRefused when there are more than ``COUNT_LIMIT``, before they are taken apart."""
    names = ours.run("ls-files", "-z", *options, tree=True, limit=LISTING_LIMIT).stdout
    if names.count(b"\0") > COUNT_LIMIT:
        raise RunnerRefused("too_many_files", f"the tree has more than {COUNT_LIMIT} files that are not ignored")
    return names.split(b"\0")


def _staged(line: bytes) -> tuple[bytes, bytes, bytes]:
    head, _, path = line.partition(b"\t")
    mode, oid, _ = head.split(b" ")
    return mode, oid, path


def _joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _sorted_out(tree: Path, tracked: list[bytes], others: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Say which paths are regular files or links now, and which tracked ones are not. Raises RunnerRefused."""
    if len(tracked) + len(others) > COUNT_LIMIT:
        raise RunnerRefused("too_many_files", f"the tree has more than {COUNT_LIMIT} files that are not ignored")
    looked = _Looked(os.fsencode(tree))
    present = [path for path in (*tracked, *others) if looked.size(path) is not None]
    huge = [path for path in present if (looked.size(path) or 0) > FILE_LIMIT]
    if huge:
        names = [path.decode("utf-8", "replace") for path in huge[:20]]
        raise RunnerRefused("file_too_large", f"larger than {FILE_LIMIT} bytes: {', '.join(names)}", {"files": names})
    there = set(present)
    return present, [path for path in tracked if path not in there]


class _Looked:
    """Looks at paths without following links, each folder once."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._folders: dict[bytes, bool] = {b"": True}

    def size(self, path: bytes) -> int | None:
        """Give the size of a regular file or link; None for anything else, also for one behind a link."""
        if not self._real(path.rpartition(b"/")[0]):
            return None
        found = self._lstat(path)
        plain = found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode))
        return found.st_size if plain and found is not None else None

    def _real(self, folder: bytes) -> bool:
        if folder not in self._folders:
            found = self._lstat(folder) if self._real(folder.rpartition(b"/")[0]) else None
            self._folders[folder] = found is not None and stat.S_ISDIR(found.st_mode)
        return self._folders[folder]

    def _lstat(self, path: bytes) -> os.stat_result | None:
        try:
            return os.lstat(self._root + b"/" + path)
        except OSError:
            return None


def _pack(ours: _Ours, made: str, base_commit: str) -> int:
    """Pack everything that the base does not reach; give the pack's size, 0 when there is nothing."""
    folder = ours.folder.git / "pack"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if made == base_commit:
        return 0
    wanted = f"{made}\n^{base_commit}\n".encode()
    options = ("pack-objects", "-q", "--revs", str(folder / "made"))
    packed = ours.run(*options, data=wanted, prefix=_bounded(PACK_LIMIT), accept=(0, _TOO_LONG))
    path = folder / f"made-{packed.text}.pack"
    if packed.returncode == _TOO_LONG:
        for half in ours.folder.git.glob("objects/pack/tmp_pack_*"):
            half.unlink()
    if packed.returncode == _TOO_LONG or path.stat().st_size > PACK_LIMIT:
        raise RunnerRefused("pack_too_large", f"the result is a pack of more than {PACK_LIMIT} bytes")
    return path.rename(folder / "out.pack").stat().st_size
