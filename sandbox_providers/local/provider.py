"""The local provider: the contract's verbs over folders and processes of this machine."""

from collections.abc import Callable, Iterator
from datetime import datetime

from sandbox_providers.contract import (
    Authority,
    IdentityMismatch,
    InvalidSpec,
    Lease,
    Observation,
    ProviderCapabilities,
    Report,
    SandboxRef,
    SandboxSpec,
    SecretBundle,
    State,
    Termination,
    Unavailable,
)
from sandbox_providers.local import ending, isolation, looking, removal
from sandbox_providers.local.creation import Creation, check
from sandbox_providers.local.images import Image, find_image
from sandbox_providers.local.layout import Gone, Layout
from sandbox_providers.registry import ProviderSettings

VERSION = "1"
_BUSY = 20.0  # seconds to wait for another process that works on the same sandbox
_PATIENCE = 15.0  # seconds a sandbox has to stop in order
_READING = frozenset({"materialising", "running", "stopping"})  # phases in which the secret channel is closed

_LIMITS = "memory is limited for each process, processor time by priority only"

_NOT_OFFERED = {
    "partition": "the supervisor is reached over the loopback interface",
    "observe_wrong_image": "code runs from the image folder itself; nothing else can have been started",
    "container_restarted": "there are no containers and no sidecars",
}


def _nothing(_step: str) -> None:
    pass


class LocalProvider:
    """Safe to use from many threads and processes at once; keeps nothing in memory but the probed isolation."""

    def __init__(
        self, settings: ProviderSettings, *, step: Callable[[str], None] = _nothing, patience: float = _PATIENCE
    ) -> None:
        self._settings = settings
        self._layout = Layout(settings.state_dir.resolve())
        self._patience = patience
        self._tiers: dict[str, isolation.Tier] = {}
        self._creation = Creation(
            layout=self._layout,
            min_free_bytes=settings.min_free_bytes,
            tier=self._tier,
            step=step,
        )

    def create(self, spec: SandboxSpec, secrets: SecretBundle) -> SandboxRef:
        """Converge on the sandbox. A new one has its instance on return; an ended one is never started again."""
        check(spec)
        with self._layout.held(spec.name, patience=_BUSY):
            order = self._creation.create(spec, secrets)
        sight = looking.look(self._layout, order.name)
        if sight is None:
            raise Unavailable("order_vanished", f"The folder of {spec.name} vanished while it was being made.")
        return looking.reference(sight)

    def observe(self, ref: SandboxRef) -> Observation:
        return looking.observe(self._layout, ref)

    def renew(self, ref: SandboxRef, until: datetime) -> Lease:
        """Confirm that the sandbox is there; it ends by itself never. Raises IdentityMismatch when it has ended."""
        if until.tzinfo is None:
            raise InvalidSpec("moment_naive", "A lease ends at a moment with a time zone.")
        seen = self.observe(ref)
        if seen.state in {State.ABSENT, State.LOST, State.FAILED, State.TERMINATED, State.TERMINATING}:
            raise IdentityMismatch("sandbox_ended", f"{ref.name} cannot be kept: it is {seen.state} ({seen.reason}).")
        return Lease(until=None)

    def withdraw_secret(self, ref: SandboxRef) -> None:
        """Make sure that the one channel, the launcher's standard input, is closed. Raises Unavailable until it is."""
        sight = self._sight(ref)
        if sight is None or sight.record is None or not sight.record.launcher.alive():
            return
        if sight.status is None or sight.status.phase not in _READING:
            raise Unavailable("secret_being_read", f"The launcher of {ref.name} is just reading its secrets.")

    def terminate(self, ref: SandboxRef, *, reason: str) -> Termination:
        """Stop all processes and prove it, at most about 20 s; REQUESTED: call again."""
        self._layout.check()
        with self._layout.held(ref.name, patience=_BUSY):
            sight = self._sight(ref)
            if sight is None:
                return Termination.GONE
            return ending.terminate(self._layout, sight, reason=reason, patience=self._patience)

    def clean_up(self, ref: SandboxRef, authority: Authority) -> Report:
        """Remove the folder of a sandbox of which nothing runs; what still runs is reported and stops the removal."""
        self._layout.check()
        with self._layout.held(ref.name, patience=_BUSY):
            sight = looking.look(self._layout, ref.name)
            if sight is not None and not looking.is_meant(sight, ref):
                return Report()
            if sight is not None and sight.order.task_id != authority.task:
                raise IdentityMismatch("authority_for_another", f"The authority is not for the task of {ref.name}.")
            running = ending.leftovers(sight) if sight else []
            if running:
                return Report(remaining=tuple(f"process {process.pid}" for process in running))
            return self._remove(ref, Gone(key=authority.task, uid=sight.order.uid if sight else ref.uid))

    def _remove(self, ref: SandboxRef, gone: Gone) -> Report:
        """Use up the name, take the folder out of sight, then empty it; each step may have been taken before."""
        if self._layout.gone(ref.name) is None:
            self._layout.remember(ref.name, gone)
        place, aside = self._layout.place(ref.name), self._layout.removing / ref.name
        existed = place.exists() or aside.exists()
        if place.exists() and not aside.exists():
            place.rename(aside)
        remaining = removal.remove(aside) + removal.remove(place)
        if remaining:
            return Report(remaining=tuple(remaining))
        return Report(removed=(f"folder {ref.name}",) if existed else ())

    def list_owned(self) -> Iterator[SandboxRef]:
        self._layout.check()
        for order in self._layout.orders():
            try:
                sight = looking.look(self._layout, order.name)
            except Unavailable:
                continue
            if sight is not None:
                yield looking.reference(sight)

    def capabilities(self) -> ProviderCapabilities:
        """Raise InvalidSpec when the image of the settings is missing, CapacityGap when the isolation does not work."""
        image = find_image(self._layout, self._settings.image_digest)
        tier = self._tier(image)
        return ProviderCapabilities(
            name="local",
            version=VERSION,
            serves=(looking.SCHEMA,),
            isolation=isolation.SHOWN[tier.tier],
            isolation_detail=f"{tier.reason}; {_LIMITS}",
            image_reference=f"host ({image.version})",
            image_digest=image.digest,
            not_offered=_NOT_OFFERED,
        )

    def _tier(self, image: Image) -> isolation.Tier:
        if image.digest not in self._tiers:
            self._tiers[image.digest] = isolation.probe(self._layout, image, self._settings.isolation)
        return self._tiers[image.digest]

    def _sight(self, ref: SandboxRef) -> looking.Sight | None:
        """Read the sandbox that ``ref`` means; None if it is not there, or another has its name."""
        sight = looking.look(self._layout, ref.name)
        return sight if sight is not None and looking.is_meant(sight, ref) else None
