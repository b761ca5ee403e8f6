"""Build the folder of code that sandboxes run from, once per content: ``images/<digest>/``.

``python -m sandbox_providers.local.images --state DIR`` prints the digest and makes it the current one.
"""

import argparse
import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from sandbox_providers.contract import InvalidSpec, ProviderError, Unavailable
from sandbox_providers.local import packages
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec, handover

MANIFEST = "image.json"
CURRENT = "current"
_NEW, _OLD = ".new-", ".old-"  # beginnings of names of what is being built and being removed
_FORMAT = "1"  # of the folder; part of every digest
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    digest: str
    python: str  # interpreter that runs it
    version: str  # of Python


def ensure_image(state: Path, *, python: Path | None = None, source: Path = _ROOT) -> str:
    """Build the image of ``source`` for ``python`` unless it exists; give its digest.

    ``python`` is the base of this interpreter by default. Safe to repeat, to race and after a kill: an image appears
    whole, by renaming. Raises Unavailable when it cannot be built.
    """
    python = python or base_python()
    version = _version_of(python)
    layout = Layout(state)
    layout.images.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = _digest(source, version)
    if not _is_whole(layout, digest):
        with _held(layout.images, fcntl.LOCK_EX):
            if not _is_whole(layout, digest):
                _build(layout, Image(digest=digest, python=str(python), version=version), source)
    return digest


def find_image(layout: Layout, digest: str) -> Image:
    """Read an image's manifest. Raises InvalidSpec when there is no such image here."""
    try:
        image = handover.read(layout.image(digest) / MANIFEST, Image)
    except (codec.Malformed, OSError):
        image = None
    if image is None or image.digest != digest:
        raise InvalidSpec("image_missing", f"There is no sandbox image {digest[:80]} under {layout.images}.")
    return image


def image_in_use(layout: Layout, digest: str) -> bool:
    """Say whether a sandbox that is not cleaned up runs, or ran, from this image."""
    return any(order.image_digest == digest for order in layout.orders())


def prune_images(state: Path, *, keep: frozenset[str]) -> list[str]:
    """Remove images that are neither in ``keep`` nor in use; give their digests.

    Waits for sandboxes and images being made. Safe to repeat, to race and after a kill: an image goes whole, by
    renaming. One that cannot be moved is left for the next time.
    """
    layout, removed = Layout(state), []
    layout.images.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _held(layout.images, fcntl.LOCK_EX):
        _clear_away(layout)
        for path in sorted(layout.images.iterdir()):
            digest = f"sha256:{path.name}"
            if (path / MANIFEST).exists() and digest not in keep and not image_in_use(layout, digest):
                with suppress(OSError):
                    path.rename(layout.images / f"{_OLD}{path.name}")
                    removed.append(digest)
        _clear_away(layout)
    return removed


def _clear_away(layout: Layout) -> None:
    """Remove what builders and pruners have left half-done. To be called with the images held by nobody else."""
    for leftover in (*layout.images.glob(f"{_NEW}*"), *layout.images.glob(f"{_OLD}*")):
        shutil.rmtree(leftover, ignore_errors=True)


def base_python() -> Path:
    """Give the interpreter below any virtual environment, so that none has to outlive this one."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _version_of(python: Path) -> str:
    if python == base_python():
        return f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"
    question = "import platform as p; print(p.python_implementation(), p.python_version(), p.machine())"
    try:
        answer = subprocess.run([python, "-I", "-c", question], capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("python_unusable", f"{python} does not run: {error}") from None
    return answer.stdout.strip()


def _digest(source: Path, version: str) -> str:
    """Give the digest of everything that decides what the image holds."""
    whole = sha256()
    parts = [("format", _FORMAT.encode()), ("python", version.encode())]
    parts += [("requirements", (source / "requirements-sandbox.txt").read_bytes())]
    parts += [("bwrap", packages.bwrap_version().encode())]
    parts += [(str(path.relative_to(source)), path.read_bytes()) for path in _code(source)]
    for name, content in parts:
        whole.update(f"{name}\0{sha256(content).hexdigest()}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _code(source: Path) -> list[Path]:
    found = (source / "sandbox_supervisor").rglob("*")
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _is_whole(layout: Layout, digest: str) -> bool:
    try:
        find_image(layout, digest)
    except InvalidSpec:
        return False
    return True


def _build(layout: Layout, image: Image, source: Path) -> None:
    """Build aside, then rename. The lock is ours."""
    _clear_away(layout)
    target = layout.image(image.digest)
    draft = layout.images / f"{_NEW}{target.name[:16]}"
    draft.mkdir(mode=0o755)
    try:
        packages.install(source / "requirements-sandbox.txt", draft, python=Path(image.python))
        for path in _code(source):
            copy = draft / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        packages.add_bwrap(draft)
        _compile(draft, image.python)
        handover.replace(draft / MANIFEST, image)
        draft.rename(target)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("image_not_built", f"The sandbox image could not be built: {error}") from None


def _compile(draft: Path, python: str) -> None:
    """Compile once here: sandboxes never write byte code. Some packages carry files that do not compile."""
    command = [python, "-I", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", str(draft)]
    subprocess.run(command, check=False, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def held_in_place(layout: Layout) -> AbstractContextManager[None]:
    """Keep images from being pruned until an order has named one; many may do so at once."""
    layout.images.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _held(layout.images, fcntl.LOCK_SH)


@contextmanager
def _held(images: Path, how: int) -> Iterator[None]:
    fd = os.open(images / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the sandbox image and print its digest.")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--python", type=Path)
    asked = parser.parse_args(argv)
    try:
        digest = ensure_image(asked.state.resolve(), python=asked.python)
    except ProviderError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    with suppress(FileNotFoundError):
        handover.replace_bytes(Layout(asked.state).images / CURRENT, f"{digest}\n".encode())
    sys.stdout.write(f"{digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
