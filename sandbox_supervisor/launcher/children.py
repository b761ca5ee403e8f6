"""Start the processes that the launcher keeps: what each is given, and nothing else."""

import fcntl
import os
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sandbox_supervisor import processes
from sandbox_supervisor.launcher.certificate import Certificate
from sandbox_supervisor.protocol import codec, folder, handover

PYTHON_FLAGS = ("-P", "-s", "-B")
_PASSED_ON = ("PATH", "LANG", *folder.PASSED_ON)
_NICENESS = 5  # of the runner: what people wait for goes first, agents take whatever processor time they get


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What stays the same for the life of the launcher."""

    identity: str
    listening: socket.socket
    certificate: Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    place: Path
    order: folder.Order
    instance: Instance
    secrets: Mapping[str, Mapping[str, str]] = field(repr=False)  # recipient → key → value
    nonce: str = field(repr=False)  # by which the supervisor knows its runner

    def materialise(self) -> int:
        """Start materialisation with its own secrets only; give the pid."""
        with _handed_over(secrets=codec.encode(self.secrets.get("materialise", {}))) as fds:
            return self._start(
                [*self._python("materialise"), "--folder", str(self.place), "--secrets-fd", str(fds["secrets"])],
                pass_fds=fds.values(),
            )

    def supervisor(self) -> tuple[int, Callable[[], None]]:
        """Start a supervisor on the instance's socket; give the pid, and what hands it certificate and secrets, once.

        It waits for these at the other ends of pipes that are empty till then. So it may be started while others are at
        work who must find neither, and it does nothing before it has them.
        """
        listening = self.instance.listening.fileno()
        bundle = codec.encode({**self.secrets.get("supervisor", {}), "runner_nonce": self.nonce})
        with _awaited(tls=self.instance.certificate.pem, secrets=bundle) as (fds, hand_over):
            pid = self._start(
                [
                    *self._python("supervise"),
                    *("--spec", str(self.place / folder.SPECIFICATION)),
                    *("--folder", str(self.place)),
                    *("--instance", self.instance.identity),
                    *("--fingerprint", self.instance.certificate.fingerprint),
                    *("--listen-fd", str(listening)),
                    *("--tls-fd", str(fds["tls"])),
                    *("--secrets-fd", str(fds["secrets"])),
                ],
                pass_fds=[listening, *fds.values()],
            )
        return pid, hand_over

    def load(self) -> None:
        """Load what starting a runner needs, so that its start need not wait for that."""
        import sandbox_supervisor.isolation  # noqa: F401

    def runner(self) -> int:
        """Start a runner behind the isolation that was ordered, never with less; give the outermost pid."""
        from sandbox_supervisor.isolation import Isolation, Tier, runner_prefix

        chosen = Isolation(tier=Tier(self.order.tier), reason=self.order.tier_reason, bwrap=self._bwrap())
        ctl, work, repo = (self.place / name for name in ("ctl", "work", "repo"))
        image = Path(self.order.image)
        prefix = runner_prefix(chosen, state=Path(self.order.state), ctl_dir=ctl, repo=repo, work=work, image=image)
        return self._start(
            [
                *prefix,
                *self._python("runner"),
                *("--ctl-dir", str(ctl), "--work", str(work), "--repo", str(repo), "--image", self.order.image),
                *("--isolation", chosen.tier, "--isolation-reason", chosen.reason),
                *("--bwrap", str(chosen.bwrap or "")),
                *("--memory", str(self.order.memory_limit or 0)),
            ],
            extra={"CAISSON_RUNNER_NONCE": self.nonce},
            niceness=_NICENESS,
        )

    def _bwrap(self) -> Path | None:
        """The image carries its own, so that an upgrade of the control plane never swaps it."""
        carried = Path(self.order.image) / "bin" / "bwrap"
        return carried if carried.exists() else None

    def _python(self, name: str) -> list[str]:
        return [self.order.python, *PYTHON_FLAGS, "-m", "sandbox_supervisor", name]

    def _start(
        self,
        argv: list[str],
        *,
        pass_fds: Iterable[int] = (),
        extra: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> int:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"PYTHONPATH": self.order.image, folder.MARK: self.order.uid, **(extra or {})}
        with Path(os.devnull).open("rb") as nothing:
            process = subprocess.Popen(
                argv,
                stdin=nothing,
                env=environment,
                cwd=self.place,
                pass_fds=tuple(pass_fds),
                process_group=0,
                preexec_fn=partial(_begin, os.getpid(), niceness),  # noqa: PLW1509  # one thread only
            )
        process.returncode = 0  # the keeper reaps by pid
        return process.pid


def _begin(launcher: int, niceness: int) -> None:
    """In the new process: end with the launcher, in every case."""
    processes.follow_parent(launcher)
    os.nice(niceness)


@contextmanager
def _handed_over(**contents: bytes) -> Iterator[dict[str, int]]:
    """Hold one memory file per content while a child inherits them."""
    fds = {name: handover.memory_file(f"caisson-{name}", data) for name, data in contents.items()}
    try:
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


@contextmanager
def _awaited(**contents: bytes) -> Iterator[tuple[dict[str, int], Callable[[], None]]]:
    """Hold the reading ends of empty pipes while a child inherits them; give what fills and closes them, once.

    Nobody is waited for: each pipe takes its content whole, and who has ended needs none.
    """
    reading, writing = {}, []
    try:
        for name, data in contents.items():
            reading[name], end = os.pipe()
            writing.append((end, data))
            if fcntl.fcntl(end, fcntl.F_GETPIPE_SZ) < len(data):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, len(data))
        yield reading, partial(_fill, writing)
    except BaseException:
        for end, _ in writing:
            os.close(end)
        raise
    finally:
        for end in reading.values():
            os.close(end)


def _fill(pipes: list[tuple[int, bytes]]) -> None:
    while pipes:
        end, data = pipes.pop()
        with suppress(BrokenPipeError):
            os.write(end, data)
        os.close(end)
