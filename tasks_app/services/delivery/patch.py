"""Write a delivery as one mail that ``git am`` applies: the change request of a remote without a forge."""

from dataclasses import dataclass
from pathlib import Path

from tasks_app import git
from tasks_app.services.delivery import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Title and body of a change request; ``trailer`` says where it comes from, one ``Key: value`` a line."""

    title: str
    body: str
    trailer: tuple[str, ...]

    def text(self) -> str:
        """Body and trailer as a forge shows them."""
        return "\n\n".join(part for part in (self.body.strip(), "\n".join(self.trailer)) if part)


def write(words: Words, *, base: str, commit: str, mirror: Path, objects: git.Objects) -> bytes:
    """Give the whole difference as one patch, binary files included. Raises GitFailed (``too_big``: no patch)."""
    flags = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index")
    difference = git.run("diff", *flags, base, commit, repo=mirror, objects=objects, limit=limits.PATCH_LIMIT).stdout
    summary = git.run(
        "diff", "--no-ext-diff", "--no-textconv", "--stat=72,60,200", base, commit, repo=mirror, objects=objects
    )
    date = git.run("show", "--no-patch", "--format=%aD", commit, repo=mirror, objects=objects).text
    head = (
        f"From {commit} Mon Sep 17 00:00:00 2001\n"
        "From: Caisson <noreply@caisson.invalid>\n"
        f"Date: {date}\n"
        f"Subject: [PATCH] {_one_line(words.title)}\n"
        "MIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=UTF-8\n"
        "Content-Transfer-Encoding: 8bit\n"
        f"\n{_quoted(words.text())}\n---\n"
    )
    return head.encode("utf-8", "replace") + summary.stdout + b"\n" + difference + b"-- \nCaisson\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "Changes"


def _quoted(text: str) -> str:
    """Keep text from being read as the end of the message, the start of a patch or a new mail."""
    signs = ("---", "diff --git ", "diff -", "Index: ", "From ", "-- ")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(f" {line}" if line.startswith(signs) else line for line in lines)
