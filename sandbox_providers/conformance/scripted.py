"""The harness of the scripted provider."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox_providers.conformance.harness import Harness, expect
from sandbox_providers.contract import Provider, SandboxRef, Unavailable
from sandbox_providers.registry import ProviderSettings
from sandbox_providers.scripted import IMAGE, Fault, ScriptedProvider, World


class ScriptedHarness(Harness):
    name = "scripted"
    image_digest = IMAGE

    def __init__(self) -> None:
        super().__init__()
        self._settings = ProviderSettings(state_dir=Path(tempfile.gettempdir()) / f"scripted-{id(self)}")
        self.scripted = ScriptedProvider(self._settings)
        self.provider: Provider = self.scripted

    @property
    def world(self) -> World:
        return self.scripted.world

    def failing_specification(self) -> bytes:
        content = b'{"fails": true}'
        failure = {"code": "clone_failed", "stage": "repository", "item": "demo", "cause": "as planned"}
        self.world.start_failures[content] = failure
        return content

    def close(self) -> None:
        World.forget(self._settings.state_dir)

    def again(self) -> Provider:
        return ScriptedProvider(self._settings)

    def compute(self, name: str) -> int:
        box = self.world.boxes.get(name)
        return int(box is not None and box.running)

    def objects(self, name: str) -> int:
        return int(name in self.world.boxes)

    def picture(self, name: str) -> object:
        return repr(self.world.boxes[name])

    def recipients(self, ref: SandboxRef) -> Mapping[str, frozenset[str]]:
        bundle = self.world.boxes[ref.name].secrets or {}
        return {who: frozenset(values) for who, values in bundle.items()}

    def clear_text(self, name: str, canary: str) -> list[str]:
        return ["the world"] if canary in repr(self.world.boxes) + repr(self.world.history) else []

    def has_secret(self, name: str) -> bool:
        return self.world.boxes[name].secrets is not None

    def drop_request(self, verb: str, call: Callable[[], object]) -> None:
        self._unanswered(verb, Fault.LOST_REQUEST, call)

    def drop_answer(self, verb: str, call: Callable[[], object]) -> None:
        self._unanswered(verb, Fault.LOST_RESPONSE, call)

    def _unanswered(self, verb: str, fault: Fault, call: Callable[[], object]) -> None:
        self.world.plan(verb, fault)
        try:
            call()
        except Unavailable:
            return
        expect(False, "the caller should have been left without an answer")

    def kill_instance(self, ref: SandboxRef) -> None:
        self.world.kill(ref.name)

    def replace_instance(self, ref: SandboxRef) -> None:
        self.world.replace(ref.name)

    def delete_object(self, ref: SandboxRef) -> None:
        self.world.delete(ref.name)

    def reuse_name(self, ref: SandboxRef) -> None:
        self.world.reuse_name(ref.name)

    def exit(self, ref: SandboxRef, code: int) -> None:
        self.world.exit(ref.name, code)

    def exhaust_capacity(self) -> Provider:
        self.world.plan("create", Fault.NO_CAPACITY)
        return self.provider

    def stop_provider(self) -> None:
        self.world.down = True

    def start_provider(self) -> None:
        self.world.down = False

    def refuse_access(self) -> None:
        self.world.plan("observe", Fault.DENIED)

    def throttle(self) -> None:
        self.world.plan("observe", Fault.THROTTLED)

    def block_removal(self, ref: SandboxRef) -> Callable[[], None]:
        box = self.world.boxes[ref.name]
        box.stuck = ("volume",)

        def unblock() -> None:
            box.stuck = ()

        return unblock
