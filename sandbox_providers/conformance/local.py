"""The harness of the local provider: real launchers, real signals, real files."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox_providers.conformance import local_material as material
from sandbox_providers.conformance.harness import Harness, NotOffered, expect, until
from sandbox_providers.contract import Observation, Provider, SandboxRef, SandboxSpec, State
from sandbox_providers.local import ending, looking, removal
from sandbox_providers.local.layout import Layout
from sandbox_providers.local.provider import LocalProvider
from sandbox_providers.registry import ProviderSettings
from sandbox_supervisor.protocol import codec, folder, handover
from sandbox_supervisor.protocol.identity import Process

PATIENCE = 2.0  # seconds for an orderly stop; a product has more


def _content(path: Path) -> bytes:
    """Read a file; what is none, or is not there any more, is empty."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


class LocalHarness(Harness):
    """Works in a folder of its own; ``image`` makes the image there and gives its digest."""

    name = "local"

    def __init__(self, *, image: Callable[[Path], str] = material.shared_image, isolation: str = "auto") -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="caisson-c-"))
        self.state = self.folder / "state"
        self.layout = Layout(self.state)
        self.image_digest = image(self.state)
        self._settings = ProviderSettings(state_dir=self.state, isolation=isolation, image_digest=self.image_digest)
        self.provider: Provider = self.again()
        self._commit = material.make_repository(self.folder / "source")
        self._known: dict[str, list[Process]] = {}
        self._records: dict[str, folder.Record] = {}
        self._uids: dict[str, str] = {}

    def close(self) -> None:
        for name in [*self._known, *(ref.name for ref in self.provider.list_owned())]:
            self._kill_all(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        removal.remove(self.folder)

    def specification(self) -> bytes:
        return material.specification(self.folder / "source", self._commit)

    def failing_specification(self) -> bytes:
        return material.specification(self.folder / "source", "1" * 40)

    def wait(self, ref: SandboxRef, *states: State) -> Observation:
        seen = super().wait(ref, *states)
        with suppress(NotOffered):  # its files are gone
            self._remember(ref.name)
        return seen

    def _remember(self, name: str) -> looking.Sight:
        """Note the processes of a sandbox while its files still name them."""
        sight = looking.look(self.layout, name)
        if sight is None:
            raise NotOffered(f"there is no sandbox {name}")
        self._uids[name] = sight.order.uid
        self._known.setdefault(name, []).extend(sight.processes())
        if sight.record:
            self._records[name] = sight.record
        return sight

    def _record(self, name: str) -> folder.Record:
        record = self._remember(name).record
        if record is None:
            raise NotOffered(f"{name} has no instance")
        return record

    # --- looking behind the provider ---------------------------------------------------------------------------------

    def again(self) -> Provider:
        return LocalProvider(self._settings, patience=PATIENCE)

    def compute(self, name: str) -> int:
        """Count what runs, once the guard has had the time to end what an instance left behind."""
        if not self._is_up(name):
            with suppress(AssertionError):
                until(lambda: not self._running(name), "everything should have ended")
        return len(self._running(name))

    def _is_up(self, name: str) -> bool:
        sight = looking.look(self.layout, name)
        return bool(sight and sight.record and sight.record.launcher.alive())

    def _running(self, name: str) -> set[Process]:
        found = {known for known in self._known.get(name, ()) if known.alive()}
        if name in self._uids:
            found |= set(ending.marked(self._uids[name]))
        return found

    def objects(self, name: str) -> int:
        return int(self.layout.place(name).exists()) + int((self.layout.removing / name).exists())

    def picture(self, name: str) -> object:
        place = self.layout.place(name)
        files = {path: path.lstat() for path in sorted(place.rglob("*"))}
        return {str(path): (stat.st_mtime_ns, stat.st_size, stat.st_mode) for path, stat in files.items()}

    def clear_text(self, name: str, canary: str) -> list[str]:
        wanted, place = canary.encode(), self.layout.state
        found = [str(path) for path in place.rglob("*") if wanted in _content(path)]
        for process in self._running(name):
            for part in ("cmdline", "environ"):
                with suppress(OSError):
                    if wanted in Path(f"/proc/{process.pid}/{part}").read_bytes():
                        found.append(f"{part} of process {process.pid}")
        return found

    def has_secret(self, name: str) -> bool:
        record = self._record(name)
        held = [str(Path(f"/proc/{process.pid}/fd/0").readlink()) for process in (record.launcher, record.guard)]
        return held != [os.devnull, os.devnull]

    # --- faults ------------------------------------------------------------------------------------------------------

    def drop_answer(self, verb: str, call: Callable[[], object]) -> None:
        call()  # and its answer is heard by nobody

    def create_and_die(self, spec: SandboxSpec, step: int) -> bool:
        return self.create_elsewhere(spec, step) != 0

    def create_elsewhere(self, spec: SandboxSpec, step: int = 0, *, first: Callable[[], None] | None = None) -> int:
        """Create in another process, which calls ``first`` and dies after ``step`` steps (0: never); give its code."""
        order = {
            "state": str(self.state),
            "image": self.image_digest,
            "isolation": self._settings.isolation,
            "step": step,
            "name": spec.name,
            "key": spec.key,
            "specification": spec.specification.decode(),
            "secrets": {who: {key: s.reveal() for key, s in keys.items()} for who, keys in self.secrets().items()},
        }
        command = [sys.executable, "-m", "sandbox_providers.conformance.dying"]
        root = str(Path(__file__).parents[2])
        environment = dict(os.environ) | {"PYTHONPATH": root}
        return subprocess.run(
            command,
            input=codec.encode(order),
            env=environment,
            check=False,
            timeout=60,
            preexec_fn=first,  # harnesses have one thread
        ).returncode

    def kill_instance(self, ref: SandboxRef) -> None:
        self._record(ref.name).launcher.signal(signal.SIGKILL)

    def replace_instance(self, ref: SandboxRef) -> None:
        """Kill the launcher and start another one in its folder."""
        self.kill_instance(ref)
        until(lambda: not self._running(ref.name), "the first instance should have ended")
        order = self._remember(ref.name).order
        command = [order.python, "-P", "-s", "-B", "-m", "sandbox_supervisor", "launch", "--folder"]
        done = subprocess.run(
            [*command, str(self.layout.place(ref.name))],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": order.image, folder.MARK: order.uid},
            input=b"{}",
            check=False,
            timeout=60,
        )
        expect(done.returncode == folder.EXIT_USED, "a second launcher should have been refused")

    def delete_object(self, ref: SandboxRef) -> None:
        self._remember(ref.name)
        self.layout.place(ref.name).rename(self.folder / f"deleted-{ref.name}")
        until(lambda: not self._running(ref.name), "a sandbox without its folder should have ended")

    def reuse_name(self, ref: SandboxRef) -> None:
        self._kill_all(ref.name)
        self.layout.place(ref.name).rename(self.folder / f"former-{ref.name}")
        stranger = self.spec()
        self.provider.create(
            SandboxSpec(
                key=stranger.key,
                name=ref.name,
                task_id=stranger.task_id,
                digest=stranger.digest,
                specification=stranger.specification,
                image_digest=stranger.image_digest,
            ),
            self.secrets(),
        )

    def restart_machine(self, ref: SandboxRef) -> None:
        """Leave what a machine that lost its power leaves: files that speak of another boot."""
        record = self._record(ref.name)
        self._kill_all(ref.name)
        place = self.layout.place(ref.name)
        (place / folder.EXIT).unlink(missing_ok=True)
        earlier = codec.plain(record) | {"boot_id": "00000000-0000-0000-0000-000000000000"}
        handover.replace(place / folder.RECORD, earlier)

    def exit(self, ref: SandboxRef, code: int) -> None:
        launcher = self._record(ref.name).launcher
        if code == 0:
            launcher.signal(signal.SIGTERM)
            return
        while launcher.alive():
            self.disturb_supervisor(ref)

    def disturb_supervisor(self, ref: SandboxRef) -> None:
        record, before = self._record(ref.name), self._supervisor(ref)
        if before:
            before.signal(signal.SIGKILL)
        until(
            lambda: not record.launcher.alive() or self._supervisor(ref) not in {None, before},
            "the supervisor should have come back",
        )

    def _supervisor(self, ref: SandboxRef) -> Process | None:
        status = self._remember(ref.name).status
        if status is None or not status.supervisor:
            return None
        supervisor = Process.parse(status.supervisor)
        return supervisor if supervisor.alive() else None

    def exhaust_capacity(self) -> Provider:
        return LocalProvider(
            ProviderSettings(state_dir=self.state, image_digest=self.image_digest, min_free_bytes=2**60)
        )

    def hang(self, ref: SandboxRef) -> None:
        """Stop supervisor and runner: a stopped process hears nothing but a kill."""
        for process in self._remember(ref.name).processes():
            if process != self._record(ref.name).guard:
                process.signal(signal.SIGSTOP)

    def stop_provider(self) -> None:
        """Let every order be unreadable, as a failing disk does."""
        for order in list(self.layout.orders()):
            path = self.layout.place(order.name) / folder.ORDER
            path.rename(path.with_suffix(".away"))
            path.mkdir()

    def start_provider(self) -> None:
        for away in self.layout.sandboxes.glob("*/order.away"):
            path = away.with_suffix(".json")
            path.rmdir()
            away.rename(path)

    def block_removal(self, ref: SandboxRef) -> Callable[[], None]:
        """Make a file immutable, which only root can do, and not on every file system."""
        path = self.layout.place(ref.name) / "work" / "immutable"
        path.touch()
        fd = os.open(path, os.O_RDONLY)
        try:
            material.set_immutable(fd, on=True)
        except OSError as error:
            os.close(fd)
            raise NotOffered(f"no file can be made unremovable here: {error.strerror}") from None

        def unblock() -> None:
            material.set_immutable(fd, on=False)
            os.close(fd)

        return unblock

    def add_foreign_object(self) -> str:
        foreign = self.layout.sandboxes / "not-ours"
        foreign.mkdir(parents=True)
        (foreign / folder.ORDER).write_text("no order of ours")
        return foreign.name

    def foreign_object_stands(self, name: str) -> bool:
        return (self.layout.sandboxes / name / folder.ORDER).exists()

    def recipients(self, ref: SandboxRef) -> Mapping[str, frozenset[str]]:
        raise NotOffered("memory files are closed as soon as they are read; the launcher's own tests look")

    def _kill_all(self, name: str) -> None:
        with suppress(NotOffered):
            self._remember(name)

        guards = {record.guard for record in (self._records.get(name),) if record}

        def nothing_runs() -> bool:
            for process in self._running(name) - guards:  # the guard ends by itself, after what it guards
                process.signal(signal.SIGKILL)
            return not self._running(name)

        until(nothing_runs, f"{name} should have ended")
