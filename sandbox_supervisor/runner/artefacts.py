"""Find what an attempt leaves on purpose: declared paths of its tree, files of its artefact folder, its result."""

import mimetypes
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path

from sandbox_supervisor.runner import files
from sandbox_supervisor.runner.folders import RESULT, Folder
from sandbox_supervisor.runner.link import FoundArtefact, RunnerRefused

RESULT_LIMIT = 64 * 1024
COUNT_LIMIT = 1000
WALK_LIMIT = 200_000  # entries looked at
DEPTH_LIMIT = 64
_CHUNK = 1024 * 1024


def find(folder: Folder, rules: tuple[tuple[str, str], ...], quota: int) -> list[FoundArtefact]:
    """Give every artefact once, declared ones first; what may not be stored is in the list with the reason.

    Regular files only; no link is followed. ``quota`` is bytes altogether.
    """
    found: dict[str, FoundArtefact] = {}
    left = quota
    for path, name, size, wrong in _candidates(folder, rules):
        if path in found:
            continue
        over = f"an attempt keeps at most {COUNT_LIMIT} artefacts" if len(found) >= COUNT_LIMIT else ""
        if size > left:
            over = over or f"{size} bytes are more than the {left} left of the quota"
        reason = wrong or over
        found[path] = _refused(path, name, size, reason) if reason else _hashed(folder, path, name)
        left -= 0 if found[path].refused else found[path].size
        if len(found) > COUNT_LIMIT:
            break
    return list(found.values())


def _candidates(folder: Folder, rules: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str, int, str]]:
    """Give path, name, size and what is wrong, in a fixed order."""
    for pattern, _ in rules:
        files.parts_of(pattern)  # refused before anything is looked at
    if rules:
        for path, mode, size in walk(folder.path, "tree", skip=".git"):
            inside = path.removeprefix("tree/")
            for pattern, name in rules:
                if matches(pattern, inside):
                    yield path, name, size, _problem(path, mode)
    for path, mode, size in walk(folder.path, "artefacts"):
        yield path, path.removeprefix("artefacts/"), size, _problem(path, mode)


def _problem(path: str, mode: int) -> str:
    if path != _text(path):
        return "its name is not UTF-8"
    if stat.S_ISREG(mode):
        return ""
    return "it is a link, and links are not followed" if stat.S_ISLNK(mode) else "it is not a regular file"


def walk(root: Path, top: str, *, skip: str = "") -> Iterator[tuple[str, int, int]]:
    """Give path, mode and size of everything below that is not a folder, sorted; links are given, never followed."""
    pending, seen = [top], 0
    while pending:
        path = pending.pop()
        parts = path.split("/")
        try:
            with files.opened_folder(root, parts) as fd:
                names = sorted(_names(fd, WALK_LIMIT - seen + 1), reverse=True)
                stats = [(name, _lstat(name, fd)) for name in names if not (skip and name == skip)]
        except (RunnerRefused, OSError):
            continue
        seen += len(names)
        if seen > WALK_LIMIT:
            raise RunnerRefused("too_many_files", f"more than {WALK_LIMIT} entries were to be looked at for artefacts")
        folders = [name for name, found in stats if found and stat.S_ISDIR(found.st_mode)]
        pending += [f"{path}/{name}" for name in folders if len(parts) < DEPTH_LIMIT]
        for name, found in reversed(stats):
            if found and not stat.S_ISDIR(found.st_mode):
                yield f"{path}/{name}", found.st_mode, found.st_size


def _names(folder: int, limit: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, limit)]


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def matches(pattern: str, path: str) -> bool:
    """Say whether a glob over a relative path fits: ``*``, ``?``, and ``**`` for any number of folders.

    Takes time in proportion to the lengths, whatever they hold: the pattern is the flow's, the names are the agent's.
    """
    *folders, last = files.parts_of(pattern) or [""]
    parts = [*folders, "**", "*"] if last == "**" else [*folders, last]
    return _fits(parts, path.split("/"), lambda part: part == "**", _fits_name)


def _fits_name(pattern: str, name: str) -> bool:
    return _fits(pattern, name, lambda sign: sign == "*", lambda sign, letter: sign in ("?", letter))


def _fits(
    pattern: Sequence[str], text: Sequence[str], is_any: Callable[[str], bool], fits_one: Callable[[str, str], bool]
) -> bool:
    """Fit a sequence to a pattern in which some items stand for any number. Only the latest of these is ever widened:
    what an earlier one could take more, the latest can as well."""
    at = here = 0
    latest, taken = -1, 0
    while here < len(text):
        if at < len(pattern) and is_any(pattern[at]):
            latest, taken, at = at, here, at + 1
        elif at < len(pattern) and fits_one(pattern[at], text[here]):
            at, here = at + 1, here + 1
        elif latest >= 0:
            taken += 1
            at, here = latest + 1, taken
        else:
            return False
    return all(is_any(item) for item in pattern[at:])


def _refused(path: str, name: str, size: int, reason: str) -> FoundArtefact:
    return FoundArtefact(name=name, path=_text(path), size=size, digest="", media_type="", refused=reason)


def _hashed(folder: Folder, path: str, name: str) -> FoundArtefact:
    try:
        with files.opened_file(folder.path, path) as fd:
            digest, size = sha256(), 0
            while chunk := os.pread(fd, _CHUNK, size):
                digest.update(chunk)
                size += len(chunk)
    except RunnerRefused as refused:
        return _refused(path, name, 0, refused.message)
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return FoundArtefact(
        name=_text(name), path=path, size=size, digest="sha256:" + digest.hexdigest(), media_type=media_type
    )


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def read(folder: Folder, path: str, offset: int, length: int) -> bytes:
    """Give bytes of a found artefact; empty at its end."""
    if path.partition("/")[0] not in {"tree", "artefacts"}:
        raise RunnerRefused("bad_path", "An artefact's path begins with tree/ or artefacts/.")
    with files.opened_file(folder.path, path) as fd:
        return os.pread(fd, length, max(0, offset))


def result(folder: Folder) -> bytes | None:
    """Give what was written to ``$CAISSON_RESULT``; None if nothing was. Raises RunnerRefused when it is too big."""
    try:
        with files.opened_file(folder.tmp, RESULT) as fd:
            data = os.pread(fd, RESULT_LIMIT + 1, 0)
    except RunnerRefused as refused:
        if refused.code == "not_found":
            return None
        raise
    if len(data) > RESULT_LIMIT:
        raise RunnerRefused("result_too_big", f"The result is larger than {RESULT_LIMIT} bytes.")
    return data
