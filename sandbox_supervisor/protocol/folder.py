"""What the local provider and the launcher write for each other into a sandbox's folder. No secret is in any of it."""

from dataclasses import dataclass, field

from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.protocol.identity import Process

SPECIFICATION = "spec.json"  # TaskSpecification, canonical
ORDER = "order.json"  # Order; exists: the name is taken
RECORD = "sandbox.json"  # Record; exists: the one launcher this sandbox may ever have has started
STATUS = "status.json"  # Status; replaced as the launcher goes on
FAILURE = "failure.json"  # MaterialisationFailure
TERMINATED = "terminated.json"  # Terminated; exists: never to run again
EXIT = "exit.json"  # Exit; written when the launcher has ended and nothing below it runs
LOCK = "lock"
LOG = "launcher.log"

MARK = "CAISSON_SANDBOX"  # environment variable with the sandbox's uid in every process of it
# What of the machine's environment reaches a sandbox and its attempts: its time zone, and whom it trusts.
PASSED_ON = ("TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
FAILURE_LIMIT = 4096  # bytes

EXIT_MATERIALISATION = 65
EXIT_TERMINATED = 69  # it was terminated before it could start
EXIT_SUPERVISOR = 70  # the supervisor could not be kept up
EXIT_FOLDER_GONE = 71
EXIT_USED = 73  # this sandbox has had its launcher
EXIT_LOCKED = 75  # another launcher is just starting it


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for. ``tier`` is ``bubblewrap`` or ``none``, decided once per sandbox."""

    key: str
    name: str
    task_id: str
    uid: str
    digest: str
    image_digest: str
    image: str  # folder
    python: str
    tier: str
    tier_reason: str  # for people
    state: str  # folder that nothing below the runner may see
    memory_limit: int | None = None
    cpu_limit: float | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The instance: which launcher, above it which guard, and where its supervisor listens."""

    pid: int
    start_time: int
    boot_id: str
    guard_pid: int
    guard_start_time: int
    host: str
    port: int
    fingerprint: str  # sha-256 of the certificate, hex
    protocol: int = PROTOCOL

    @property
    def launcher(self) -> Process:
        return Process(pid=self.pid, start_time=self.start_time, boot_id=self.boot_id)

    @property
    def guard(self) -> Process:
        return Process(pid=self.guard_pid, start_time=self.guard_start_time, boot_id=self.boot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """``phase``: starting, materialising, running, stopping. From ``materialising`` on the secret channel is closed."""

    phase: str
    supervisor: str = ""  # Process.text()
    runner: str = ""
    supervisor_starts: int = 0
    runner_starts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterialisationFailure:
    code: str
    stage: str
    item: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the launcher ended: an exit code, or the signal that killed it."""

    code: int | None = None
    signal: int | None = None
