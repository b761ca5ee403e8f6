"""What the cases need of a provider under test: sandboxes to make, faults to inject, ways to look behind it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import count

from sandbox_providers.contract import (
    Authority,
    Observation,
    Provider,
    SandboxRef,
    SandboxSpec,
    Secret,
    SecretBundle,
    State,
)

WAIT = 30.0  # seconds that anything may take
_PAUSE = 0.02


class NotOffered(Exception):  # not an error
    """This provider cannot do or cannot suffer this; the message says why."""


class Broken(AssertionError):
    """The contract does not hold."""


def expect(holds: object, what: str) -> None:
    """Raise Broken saying ``what`` should have been, unless it holds."""
    if not holds:
        raise Broken(what)


def until(question: Callable[[], object], what: str) -> None:
    """Ask again until the answer is true. Raises Broken after ``WAIT`` seconds."""
    ends_at = time.monotonic() + WAIT
    while not question():
        expect(time.monotonic() < ends_at, f"{what} within {WAIT:.0f} s")
        time.sleep(_PAUSE)


def leave(task: str) -> Authority:
    """Give leave to remove the sandbox of ``task``, as only a person or a deadline can outside this kit."""
    return Authority(task=task, reason="person_deleted")


class Harness:
    """Base of every provider's harness. A verb that stays unimplemented is not offered."""

    name = ""
    provider: Provider
    image_digest = ""

    def __init__(self) -> None:
        self._numbers = count(1)

    # --- things to create --------------------------------------------------------------------------------------------

    def specification(self) -> bytes:
        """Give the bytes of a specification that starts well."""
        return b"{}"

    def spec(self, *, specification: bytes | None = None, image_digest: str = "") -> SandboxSpec:
        """Give an order that has not been given before."""
        number = next(self._numbers)
        content = self.specification() if specification is None else specification
        return SandboxSpec(
            key=f"tsk_{number}",
            name=f"cs-{number}",
            task_id=f"tsk_{number}",
            digest="sha256:" + sha256(content).hexdigest(),
            specification=content,
            image_digest=image_digest or self.image_digest,
        )

    def altered(self, spec: SandboxSpec) -> SandboxSpec:
        """Give an order with the same key and name for something else."""
        content = spec.specification + b" "
        return replace(spec, specification=content, digest="sha256:" + sha256(content).hexdigest())

    def secrets(self) -> SecretBundle:
        return {
            "supervisor": {"task_token": Secret("canary-task-9d1c"), "dial_token": Secret("canary-dial-4e7b")},
            "materialise": {"download_token": Secret("canary-load-b20a")},
        }

    def start(self) -> tuple[SandboxSpec, SandboxRef]:
        """Create a sandbox and wait until it is ready."""
        spec = self.spec()
        ref = self.provider.create(spec, self.secrets())
        self.wait(ref, State.READY)
        return spec, ref

    def wait(self, ref: SandboxRef, *states: State) -> Observation:
        """Observe until the sandbox is in one of ``states``."""
        seen: list[Observation] = []

        def is_there() -> bool:
            seen[:] = [self.provider.observe(ref)]
            return seen[0].state in states

        try:
            until(is_there, f"the sandbox should have become {' or '.join(states)}")
        except Broken as broken:
            raise Broken(f"{broken}; it is {seen[0].state}: {seen[0].reason} {seen[0].cause}") from None
        return seen[0]

    def close(self) -> None:
        """End everything that was started."""

    # --- looking behind the provider ---------------------------------------------------------------------------------

    def again(self) -> Provider:
        """Give the provider as another process of the control plane has it, knowing nothing of this one."""
        raise NotOffered("there is only one process")

    def compute(self, name: str) -> int:
        """Count what runs for the sandbox."""
        raise NotOffered("what runs cannot be counted")

    def objects(self, name: str) -> int:
        """Count the runtime objects of this name."""
        raise NotOffered("runtime objects cannot be counted")

    def picture(self, name: str) -> object:
        """Give a value that changes whenever the sandbox is changed."""
        raise NotOffered("changes cannot be seen")

    def recipients(self, ref: SandboxRef) -> Mapping[str, frozenset[str]]:
        """Give the keys that each recipient really has been given."""
        raise NotOffered("recipients cannot be asked")

    def clear_text(self, name: str, canary: str) -> list[str]:
        """Give the places where a secret value lies open."""
        raise NotOffered("there is nothing to search")

    def has_secret(self, name: str) -> bool:
        """Say whether the provider still holds the bundle."""
        raise NotOffered("the provider holds no bundle at any time")

    # --- faults ------------------------------------------------------------------------------------------------------

    def drop_request(self, verb: str, call: Callable[[], object]) -> None:
        raise NotOffered("a call is a function call; there is no request that could be lost")

    def drop_answer(self, verb: str, call: Callable[[], object]) -> None:
        raise NotOffered("answers cannot be lost")

    def create_and_die(self, spec: SandboxSpec, step: int) -> bool:
        """Create in a process that dies after ``step`` steps; False when it came to its end before."""
        raise NotOffered("creation is one step")

    def kill_instance(self, ref: SandboxRef) -> None:
        raise NotOffered("instances cannot be killed")

    def replace_instance(self, ref: SandboxRef) -> None:
        raise NotOffered("instances cannot be replaced")

    def delete_object(self, ref: SandboxRef) -> None:
        raise NotOffered("objects cannot be deleted from outside")

    def reuse_name(self, ref: SandboxRef) -> None:
        raise NotOffered("names cannot be reused from outside")

    def restart_machine(self, ref: SandboxRef) -> None:
        raise NotOffered("there is no machine to restart")

    def exit(self, ref: SandboxRef, code: int) -> None:
        raise NotOffered("exit codes cannot be provoked")

    def exhaust_capacity(self) -> Provider:
        """Give a provider that has no room."""
        raise NotOffered("room cannot be used up")

    def bad_image(self) -> str:
        """Give the digest of an image that does not exist."""
        return "sha256:" + "b" * 64

    def failing_specification(self) -> bytes:
        """Give a specification whose materialisation fails."""
        raise NotOffered("nothing is materialised")

    def hang(self, ref: SandboxRef) -> None:
        """Make the sandbox ignore polite requests to stop."""
        raise NotOffered("nothing can hang")

    def stop_provider(self) -> None:
        raise NotOffered("the provider cannot be stopped")

    def start_provider(self) -> None:
        raise NotOffered("the provider cannot be stopped")

    def refuse_access(self) -> None:
        """Let the next call be refused for lack of rights."""
        raise NotOffered("there is no access control between the two")

    def throttle(self) -> None:
        """Let the next call be throttled."""
        raise NotOffered("nothing throttles")

    def block_removal(self, ref: SandboxRef) -> Callable[[], None]:
        """Make a part of the sandbox unremovable; give what undoes it."""
        raise NotOffered("removal cannot be blocked")

    def add_foreign_object(self) -> str:
        """Put something that is not ours where sandboxes are; give its name."""
        raise NotOffered("there is nothing foreign")

    def foreign_object_stands(self, name: str) -> bool:
        raise NotOffered("there is nothing foreign")

    def disturb_supervisor(self, ref: SandboxRef) -> None:
        """End the supervisor, so that it has to come back."""
        raise NotOffered("there is no supervisor")
