"""Read a bundle that came out of a sandbox: hostile bytes until every check has passed.

The header is parsed here and the pack goes through ``git index-pack --strict`` into a quarantine, because Git does not
check the objects of a bundle that it fetches from. Nothing of a bundle is ever written into a mirror.
"""

import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sandbox_supervisor.protocol import git_rules
from tasks_app import git
from tasks_app.services.delivery import limits


class BundleRefused(Exception):
    """The bundle is not what was promised. ``code`` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before the pack: ``tip`` is the one commit it brings, ``ref`` what the sandbox calls it."""

    ref: str
    tip: str
    prerequisites: tuple[str, ...]
    pack_offset: int
    objects: int


def read_header(bundle: Path) -> Header:
    """Parse a bundle of version 2 or 3 with exactly one ref. Raises BundleRefused."""
    with bundle.open("rb") as file:
        data = file.read(limits.HEADER_LIMIT + 12)
    end = data.find(b"\n\n")
    if end < 0 or end > limits.HEADER_LIMIT:
        raise BundleRefused("bundle_malformed", "The bundle has no readable header.")
    try:
        signature, *lines = data[:end].decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise BundleRefused("bundle_malformed", "The bundle's header is not text.") from None
    if signature not in {"# v2 git bundle", "# v3 git bundle"}:
        raise BundleRefused("bundle_malformed", "This is not a Git bundle of version 2 or 3.")
    prerequisites, refs = _lines(lines)
    if len(refs) != 1:
        raise BundleRefused("bundle_refs", f"The bundle names {len(refs)} refs; it must name the task branch only.")
    (ref, tip), offset = refs[0], end + 2
    return Header(
        ref=ref,
        tip=tip,
        prerequisites=tuple(prerequisites),
        pack_offset=offset,
        objects=_object_count(data[offset : offset + 12]),
    )


def _lines(lines: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    prerequisites: list[str] = []
    refs: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("@"):
            if not line.startswith("@object-format="):
                raise BundleRefused("bundle_malformed", "The bundle is filtered or of an unknown kind.")
            continue
        commit, _, name = line.removeprefix("-").partition(" ")
        if not git_rules.valid_commit(commit):
            raise BundleRefused("bundle_malformed", "The bundle's header holds something that is not a commit id.")
        if line.startswith("-"):
            prerequisites.append(commit)
        else:
            refs.append((name, commit))
    return prerequisites, refs


def _object_count(start: bytes) -> int:
    if len(start) < 12 or start[:4] != b"PACK":
        raise BundleRefused("bundle_malformed", "The bundle holds no pack.")
    version, count = struct.unpack(">II", start[4:])
    if version not in {2, 3}:
        raise BundleRefused("bundle_malformed", "The bundle's pack is of an unknown version.")
    if count > limits.OBJECT_LIMIT:
        raise BundleRefused(
            "bundle_too_many_objects",
            f"The bundle brings {count} new objects; at most {limits.OBJECT_LIMIT} are allowed.",
        )
    return int(count)


@contextmanager
def unpacked(bundle: Path, mirror: Path) -> Iterator[git.Objects]:
    """Give the bundle's objects, checked one by one, in a quarantine beside ``mirror`` that is gone afterwards.

    What a killed worker left there is removed first: the caller holds the mirror's lease. Raises BundleRefused when Git
    finds anything wrong with the objects.
    """
    header = read_header(bundle)
    prefix = f"{mirror.name}.quarantine-"
    for left in mirror.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=mirror.parent) as folder:
        objects = git.Objects(folder=Path(folder), alternate=mirror / "objects")
        (objects.folder / "pack").mkdir()
        with bundle.open("rb") as file:
            file.seek(header.pack_offset)
            try:
                git.run(
                    *("-c", "core.bigFileThreshold=64m", "-c", "core.packedGitWindowSize=32m"),
                    *("-c", "core.packedGitLimit=256m", "-c", "pack.threads=1"),
                    "index-pack",
                    "--stdin",
                    "--fix-thin",
                    "--strict",
                    "--threads=1",
                    f"--max-input-size={limits.BUNDLE_LIMIT}",
                    repo=mirror,
                    objects=objects,
                    stdin=file,
                    timeout=limits.UNPACK_TIMEOUT,
                    memory=limits.UNPACK_MEMORY,
                    limit=1024 * 1024,
                )
            except git.GitFailed as failure:
                raise BundleRefused("bundle_objects", f"Git refuses the bundle's objects: {_why(failure)}") from failure
        yield objects


def check_descent(mirror: Path, objects: git.Objects, *, base: str, commit: str) -> None:
    """Make sure that ``commit`` is a whole commit that descends from ``base``. Raises BundleRefused."""
    kind = git.run("cat-file", "-t", commit, repo=mirror, objects=objects, accept=(0, 128))
    if kind.text != "commit":
        raise BundleRefused("bundle_commit", "The bundle does not hold the commit that was announced.")
    try:
        known = git.run("merge-base", "--is-ancestor", base, commit, repo=mirror, objects=objects, accept=(0, 1))
        if known.returncode:
            raise BundleRefused(
                "not_a_descendant", f"The commit does not descend from the frozen baseline {base[:12]}."
            )
        new = git.run("rev-list", "--objects", "--count", commit, f"^{base}", repo=mirror, objects=objects).text
    except git.GitFailed as failure:
        raise BundleRefused("bundle_incomplete", f"Objects are missing from the bundle: {_why(failure)}") from failure
    if int(new) > limits.OBJECT_LIMIT:
        raise BundleRefused(
            "bundle_too_many_objects",
            f"The commit brings {new} new objects; at most {limits.OBJECT_LIMIT} are allowed.",
        )


def _why(failure: git.GitFailed) -> str:
    lines = [line for line in failure.stderr.splitlines() if line.strip()]
    return (lines[-1] if lines else failure.message)[:300]
