"""``./caisson doctor``: look at everything the product needs, say what is wrong and how to fix it."""

import argparse
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from config.commands import code, product
from config.commands.processes import Layout, RedisMissing, redis_program

ROOM_WANTED = 2 * 1024**3  # bytes free for sandboxes and their images


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``fix`` is empty when all is well."""

    what: str
    words: str
    fix: str = ""


def main(layout: Layout, _: argparse.Namespace) -> int:
    """Print one line per thing looked at, and what to do where something is wrong. Gives 1 when something is."""
    findings = [finding for look in LOOKS for finding in look(layout)]
    for finding in findings:
        sys.stdout.write(f"{'ok ' if not finding.fix else 'BAD'}  {finding.what}: {finding.words}\n")
        if finding.fix:
            sys.stdout.write(f"     fix: {finding.fix}\n")
    return 1 if any(finding.fix for finding in findings) else 0


def _programs(_: Layout) -> Iterator[Finding]:
    yield Finding(what="Python", words=f"{platform.python_version()} at {sys.executable}")
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    yield Finding(what="Git", words=git.stdout.strip())
    try:
        yield Finding(what="Redis", words=redis_program())
    except RedisMissing as missing:
        yield Finding(what="Redis", words="not found", fix=str(missing))


def _isolation(layout: Layout) -> Iterator[Finding]:
    from config.commands.local import load_django

    load_django(layout)
    from sandbox_providers.contract import ProviderError
    from tasks_app.services.providers import image_in_use, provider_named

    if not image_in_use():
        yield Finding(what="isolation", words="known after the first ./caisson up, which builds what sandboxes run")
        return
    try:
        capabilities = provider_named("local").capabilities()
    except ProviderError as error:
        yield Finding(
            what="isolation", words=error.message, fix="./caisson stop, then ./caisson up builds what is missing"
        )
        return
    weak = capabilities.isolation != "bubblewrap"
    yield Finding(
        what="isolation",
        words=f"{capabilities.isolation} ({capabilities.isolation_detail})",
        fix="allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1) or run as root; "
        "until then sandboxes share your files"
        if weak
        else "",
    )


def _room(layout: Layout) -> Iterator[Finding]:
    free = shutil.disk_usage(layout.state).free
    yield Finding(
        what="state directory",
        words=f"{layout.state}, {free / 1024**3:.1f} GiB free",
        fix="free some space, or set CAISSON_STATE_DIR to a folder on a larger disk" if free < ROOM_WANTED else "",
    )


def _database(layout: Layout) -> Iterator[Finding]:
    from config.commands import local

    if not local.database_exists(layout):
        yield Finding(what="database", words="made by the first ./caisson up")
        return
    try:
        words = local.safe_mode(layout)
    except product.ProductProblem as problem:
        yield Finding(what="database", words=str(problem), fix="./caisson up; read its words")
        return
    yield Finding(what="database", words=f"SAFE MODE. {words}" if words else local.database_place(), fix=_fix(words))
    yield from _orphans(layout)


def _fix(words: str) -> str:
    if not words:
        return ""
    from tasks_app.services import deployment

    return (
        "until a person confirms, no sandbox is removed and nothing is delivered. If this is the right database: "
        f"{deployment.CONFIRM}; otherwise stop, put the right one in its place, and start. "
        f"It was compared with {deployment.place()}"
    )


def _orphans(layout: Layout) -> Iterator[Finding]:
    """Name the sandboxes that no task has."""
    from sandbox_providers.contract import ProviderError
    from tasks_app.services import restored

    try:
        found = restored.orphans()
    except ProviderError as error:
        yield Finding(what="sandboxes", words=error.message, fix=f"make {layout.state} readable")
        return
    for orphan in found:
        yield Finding(
            what=f"sandbox {orphan.name}",
            words=f"{orphan.provider}, {orphan.why}",
            fix="nothing removes it. When nobody needs it, remove its folder below "
            f"{layout.state / 'sandboxes'}; its processes end by themselves",
        )


def _running(layout: Layout) -> Iterator[Finding]:
    found = product.running(layout)
    if found is None:
        yield _port(layout)
        return
    other = found.code != code.fingerprint(layout.checkout)
    yield Finding(
        what="product",
        words=f"running on port {found.port}, of {'other code than this checkout holds now' if other else 'this code'}",
        fix="./caisson stop, then ./caisson up (sandboxes go on)" if other else "",
    )
    for name, word in found.programs.items():
        yield Finding(
            what=name,
            words=word.lower(),
            fix=f"read {layout.state / 'logs' / name}.log; it is started again by itself" if word != "RUNNING" else "",
        )


def _port(layout: Layout) -> Finding:
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", layout.port)) == 0
    return Finding(
        what="product",
        words=f"not running; port {layout.port} is {'taken by another program' if taken else 'free'}",
        fix=f"./caisson up --port {layout.port + 1}" if taken else "",
    )


LOOKS: tuple[Callable[[Layout], Iterator[Finding]], ...] = (_programs, _room, _isolation, _database, _running)
