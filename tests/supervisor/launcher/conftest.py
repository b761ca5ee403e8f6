"""A running sandbox with stand-ins for supervisor and runner, and what a test wants to do to it."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.contract import Endpoint, Observation, State
from sandbox_supervisor.protocol import folder, handover
from sandbox_supervisor.protocol.identity import Process
from tests.sandbox_folder import call, make_image, until


class Sandbox:
    """One sandbox of the local provider, looked at from outside."""

    def __init__(self, harness: LocalHarness, *, specification: bytes | None = None) -> None:
        self.harness = harness
        self.spec = harness.spec(specification=specification)
        self.place: Path = harness.layout.place(self.spec.name)

    def create(self) -> "Sandbox":
        self.ref = self.harness.provider.create(self.spec, self.harness.secrets())
        return self

    def start(self) -> "Sandbox":
        self.create().wait(State.READY)
        until(self.daemons, what="the runner's daemon")
        return self

    def wait(self, *states: State) -> Observation:
        return self.harness.wait(self.ref, *states)

    def observe(self) -> Observation:
        return self.harness.provider.observe(self.ref)

    @property
    def record(self) -> folder.Record:
        record = handover.read(self.place / folder.RECORD, folder.Record)
        assert record is not None
        return record

    @property
    def status(self) -> folder.Status:
        status = handover.read(self.place / folder.STATUS, folder.Status)
        assert status is not None
        return status

    @property
    def supervisor(self) -> Process:
        return Process.parse(self.status.supervisor)

    @property
    def runner(self) -> Process:
        return Process.parse(self.status.runner)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(host=self.record.host, port=self.record.port, fingerprint=self.record.fingerprint)

    def ask(self) -> dict[str, object]:
        return call(self.endpoint, self.harness.secrets()["supervisor"]["dial_token"].reveal())

    def daemons(self) -> list[int]:
        """Give the pids that the runner's fled daemons have written down."""
        try:
            return [int(word) for word in (self.place / "work" / "daemon").read_text().split()]
        except FileNotFoundError:
            return []

    def everything(self) -> list[Process]:
        """Identify what runs now, fled daemons too."""
        known = [self.record.launcher, self.record.guard, self.supervisor, self.runner]
        return known + [daemon for pid in self.daemons() if (daemon := Process.of(pid))]

    def kill_supervisor(self) -> None:
        before = self.supervisor
        before.signal(signal.SIGKILL)
        until(lambda: self.supervisor not in {before} and self.supervisor.alive(), what="another supervisor")

    def failure(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.place / folder.FAILURE).read_text())
        return found


def all_gone(processes: list[Process]) -> None:
    until(lambda: not any(process.alive() for process in processes), what="the end of every process")


@pytest.fixture
def harness() -> Iterator[LocalHarness]:
    made = LocalHarness(image=make_image, isolation="none")
    yield made
    made.close()


@pytest.fixture
def sandbox(harness: LocalHarness) -> Callable[..., Sandbox]:
    def make(**options: bytes) -> Sandbox:
        return Sandbox(harness, **options)

    return make
