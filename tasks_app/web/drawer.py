"""What the drawer shows of one attempt: its session, output, files, diff, artefacts, details."""

from dataclasses import dataclass, replace
from posixpath import basename, dirname
from typing import Any

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import AttemptView
from tasks_app.live import dial
from tasks_app.models import Archive, Task
from tasks_app.web import diffs
from tasks_app.web.looking import Source
from tasks_app.web.pictures import NodeLine
from workspaces_app.errors import ControlPlaneError

BINARY_TOLD_BY = 8000  # bytes at the beginning of which one is NUL, as Git does
FILE_SHOWN = 256 * 1024  # bytes of a file that are shown in the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    entries: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    text: str  # empty of a binary file
    size: int
    cut: bool
    binary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    name: str
    words: str
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawer:
    """``problem`` says why ``shown`` is empty."""

    tabs: tuple[Tab, ...]
    tab: str
    path: str = ""
    shown: Any = None
    problem: str = ""

    @property
    def file_path(self) -> str:
        """Give the path without the mark that it is a file."""
        return self.path.removeprefix("file:")

    @property
    def file_name(self) -> str:
        return basename(self.file_path)

    @property
    def parent_folder(self) -> str:
        return dirname(self.file_path)

    @property
    def prefix(self) -> str:
        """Give what stands before the name of an entry of this folder."""
        return f"{self.path}/" if self.path else ""


def open_drawer(
    task: Task, line: NodeLine, attempt: AttemptView | None, *, tab: str, path: str, source: Source
) -> Drawer:
    """Read what ``tab`` shows of ``attempt``: from the sandbox, or from what was kept of it."""
    tabs = _tabs(line, attempt)
    chosen = tab if tab in {each.name for each in tabs} else tabs[0].name
    drawer = Drawer(tabs=tabs, tab=chosen, path=path)
    if attempt is None or chosen == "details":
        return drawer
    if source is not Source.LIVE and chosen != "artefacts":
        return replace(drawer, problem="The sandbox does not answer, or was removed. Results and artefacts are kept.")
    if chosen == "session":
        return drawer
    try:
        return replace(drawer, shown=READERS[chosen](task, attempt, path))
    except ControlPlaneError as error:
        return replace(drawer, problem=error.message)


def _tabs(line: NodeLine, attempt: AttemptView | None) -> tuple[Tab, ...]:
    if line.kind in {"approval", "delivery"}:
        return (Tab(name="details", words="Details"),)
    first = Tab(name="session", words="Session" if line.kind == "agent" else "Output")
    count = len(attempt.artefacts) if attempt else 0
    return (
        first,
        Tab(name="files", words="Files"),
        Tab(name="diff", words="Diff"),
        Tab(name="artefacts", words="Artefacts", count=count or None),
        Tab(name="details", words="Details"),
    )


def _diff(task: Task, attempt: AttemptView, _: str) -> diffs.Diff:
    return diffs.read(dial.get_attempt(dial.upstream_of(task), attempt.id, "diff").body)


def _files(task: Task, attempt: AttemptView, path: str) -> Folder | FileText:
    """Read a folder, or a file when ``path`` names one (``file:`` stands before it)."""
    upstream = dial.upstream_of(task)
    if path.startswith("file:"):
        wanted = {"path": path.removeprefix("file:")}
        headers = {"Range": f"bytes=0-{FILE_SHOWN - 1}"}
        answer = dial.get_attempt(upstream, attempt.id, "files/content", query=wanted, headers=headers)
        whole = _whole_size(answer.headers.get("content-range", ""), len(answer.body))
        if b"\0" in answer.body[:BINARY_TOLD_BY]:
            return FileText(text="", size=whole, cut=False, binary=True)
        text = answer.body.decode("utf-8", errors="replace")
        return FileText(text=text, size=whole, cut=whole > len(answer.body))
    answer = dial.get_attempt(upstream, attempt.id, "files", query={"path": path})
    entries = codec.decode(answer.body, list[dict[str, Any]])
    return Folder(entries=sorted(entries, key=lambda each: (each.get("type") != "dir", str(each.get("name")))))


def _whole_size(content_range: str, otherwise: int) -> int:
    size = content_range.rpartition("/")[2]
    return int(size) if size.isdecimal() else otherwise


def _artefacts(task: Task, attempt: AttemptView, _: str) -> list[dict[str, Any]]:
    """List what the attempt left, and which of it is kept in the archive."""
    digests = [str(each.get("digest")) for each in attempt.artefacts]
    kept = {archive.digest: archive.pk for archive in Archive.objects.whole().filter(task=task, digest__in=digests)}
    return [{**each, "archive": kept.get(str(each.get("digest")))} for each in attempt.artefacts]


READERS = {"diff": _diff, "files": _files, "artefacts": _artefacts}
