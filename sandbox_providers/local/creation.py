"""Create a sandbox: a chain of steps, each of which may have been taken before by somebody who then died."""

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from sandbox_providers.contract import (
    CapacityGap,
    InvalidSpec,
    SandboxSpec,
    SecretBundle,
    SpecConflict,
    Unavailable,
)
from sandbox_providers.local.images import Image, find_image, held_in_place
from sandbox_providers.local.isolation import Tier
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec, folder, handover

PYTHON_FLAGS = ("-P", "-s", "-B")
START_LIMIT = 15.0  # seconds in which a launcher must have said who it is
_PASSED_ON = ("PATH", *folder.PASSED_ON)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_PAUSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """``tier`` gives the isolation for a new sandbox; ``step`` is called after each step with its name."""

    layout: Layout
    min_free_bytes: int
    tier: Callable[[Image], Tier]
    step: Callable[[str], None]

    def create(self, spec: SandboxSpec, bundle: SecretBundle) -> folder.Order:
        """Take the steps that are still missing; give what was ordered. To be called with the name held."""
        check(spec)
        self._refuse_used_names(spec)
        order = self._order(spec)
        place = self.layout.place(spec.name)
        self._write_specification(place, spec)
        if not (place / folder.RECORD).exists() and not (place / folder.TERMINATED).exists():
            process = _spawn(place, order, bundle)
            self.step("launcher spawned")
            _await_instance(place, process)
            self.step("instance known")
        return order

    def _refuse_used_names(self, spec: SandboxSpec) -> None:
        if self.layout.gone(spec.name):
            raise SpecConflict("name_used", f"The sandbox {spec.name} was removed; its name is never used again.")
        for order in self.layout.orders():
            if order.key == spec.key and order.name != spec.name:
                raise SpecConflict("key_used", f"{spec.key} has a sandbox already: {order.name}.", name=order.name)

    def _order(self, spec: SandboxSpec) -> folder.Order:
        """Take the name for this specification, or find that it was taken for the same one."""
        found = self.layout.order(spec.name)
        if found is None:
            with held_in_place(self.layout):
                self._write_order(spec)
            found = self.layout.order(spec.name)
        if found is None:
            raise Unavailable("order_vanished", f"The folder of {spec.name} vanished while it was being made.")
        if (found.key, found.digest, found.image_digest) != (spec.key, spec.digest, spec.image_digest):
            raise SpecConflict("spec_differs", f"The sandbox {spec.name} exists with another specification.")
        return found

    def _write_order(self, spec: SandboxSpec) -> None:
        image = find_image(self.layout, spec.image_digest)
        tier = self.tier(image)
        order = folder.Order(
            key=spec.key,
            name=spec.name,
            task_id=spec.task_id,
            uid=secrets.token_hex(16),
            digest=spec.digest,
            image_digest=spec.image_digest,
            image=str(self.layout.image(spec.image_digest)),
            python=image.python,
            tier=tier.tier,
            tier_reason=tier.reason,
            state=str(self.layout.state),
            memory_limit=spec.resources.memory_limit,
            cpu_limit=spec.resources.cpu_limit,
            labels=dict(spec.labels),
        )
        self._check_room()
        place = self.layout.place(spec.name)
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            self.step("folder made")
            handover.write_once(place / folder.ORDER, order)
        except OSError as error:
            raise CapacityGap("state_full", f"{place} cannot be written: {error.strerror}.") from None
        self.step("order written")

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.layout.state).free
        if free < self.min_free_bytes:
            raise CapacityGap(
                "disk_full", f"{self.layout.state} has {free} bytes left; {self.min_free_bytes} are wanted.", free=free
            )

    def _write_specification(self, place: Path, spec: SandboxSpec) -> None:
        """Put the specification where the launcher reads it; what is there is complete, because it came by renaming."""
        if (place / folder.SPECIFICATION).exists():
            return
        handover.replace_bytes(place / folder.SPECIFICATION, spec.specification)
        self.step("specification written")


def check(spec: SandboxSpec) -> None:
    """Raise InvalidSpec for what no repetition can make right, before anything exists."""
    if not _DIGEST.match(spec.digest) or spec.digest != "sha256:" + sha256(spec.specification).hexdigest():
        raise InvalidSpec("digest_wrong", "The digest is not that of the specification's bytes.")
    if not spec.key or not spec.task_id:
        raise InvalidSpec("key_missing", "A sandbox needs a key and a task.")
    if spec.runtime_class is not None:
        raise InvalidSpec("runtime_class_unknown", "The local provider knows no runtime classes; leave it out.")


def _spawn(place: Path, order: folder.Order, bundle: SecretBundle) -> "subprocess.Popen[bytes]":
    """Start a launcher.

    The secrets lie in memory behind its standard input before it exists, so that no death of ours can cut them short.
    """
    stdin = handover.memory_file("caisson-secrets", codec.encode(_revealed(bundle)))
    log = os.open(place / folder.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        return subprocess.Popen(
            [order.python, *PYTHON_FLAGS, "-m", "sandbox_supervisor", "launch", "--folder", str(place)],
            stdin=stdin,
            stdout=log,
            stderr=log,
            env=environment | {"PYTHONPATH": order.image, "LANG": "C.UTF-8", folder.MARK: order.uid},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable("launcher_missing", f"{order.python} cannot be started: {error.strerror}.") from None
    finally:
        os.close(stdin)
        os.close(log)


def _revealed(bundle: SecretBundle) -> dict[str, dict[str, str]]:
    return {who: {key: secret.reveal() for key, secret in values.items()} for who, values in bundle.items()}


def _await_instance(place: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until this launcher, or another one, is the sandbox's instance, or until it is clear that none will be."""
    try:
        code = process.wait(START_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()  # only who waits for the launcher; the launcher itself goes on
        process.wait()
        code = folder.EXIT_LOCKED
    if code == folder.EXIT_LOCKED:
        _await_record(place)
    elif not (place / folder.RECORD).exists() and not (place / folder.TERMINATED).exists():
        raise Unavailable(
            "launcher_failed", f"The launcher ended with {code}; see {place / folder.LOG}.", exit_code=code
        )


def _await_record(place: Path) -> None:
    """Another launcher is on its way: a creator that started it has died, or was too slow for us."""
    ends_at = time.monotonic() + START_LIMIT
    while not (place / folder.RECORD).exists():
        if time.monotonic() > ends_at:
            raise Unavailable("launcher_slow", f"The launcher of {place.name} has not said who it is yet.")
        time.sleep(_PAUSE)
