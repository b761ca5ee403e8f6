"""Say how the sandbox is doing, and take what the control plane answers."""

import asyncio
import logging
from dataclasses import dataclass

from sandbox_supervisor.engine.consumption import Consumption
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.engine.storage import condition, failure_of
from sandbox_supervisor.engine.views import attention, bar, delivery_proof, usage
from sandbox_supervisor.graph.facts import GateClosed, GateOpened
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import (
    CancelMode,
    Command,
    CommandVerb,
    Desired,
    Heartbeat,
    HeartbeatAnswer,
)
from sandbox_supervisor.protocol.states import GRAPH_ENDED, GraphState

HEAR_PATIENCE = 5.0  # seconds for writing down what the control plane wants

logger = logging.getLogger(__name__)

CONTROL_PLANE = "control plane"  # the actor of what it asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxIdentity:
    """Which sandbox this is: what the launcher says, and the certificate it made."""

    instance: str = ""
    fingerprint: str = ""


class Reports:
    def __init__(
        self,
        engine: Engine,
        identity: SandboxIdentity,
        runners: Runners,
        consumption: Consumption,
        *,
        storage_grace: float,
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._runners = runners
        self._consumption = consumption
        self._grace = storage_grace
        self._specification = codec.digest(engine.spec)
        self._urgent = asyncio.Event()
        self._told: tuple[object, ...] = ()
        engine.watchers.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.graph or change.nodes or change.requests:
            self.refresh()

    def refresh(self) -> None:
        """Ask for a heartbeat at once if something changed that must not wait for the next one."""
        graph = self._engine.state.graph
        telling = (graph.state, graph.round, attention(self._engine.state), self.ready())
        if telling != self._told:
            self._told = telling
            self._urgent.set()

    async def wait_urgent(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._urgent.wait()
        except TimeoutError:
            return
        self._urgent.clear()

    def readiness(self) -> dict[str, str]:
        """Item → "ok" or what is wrong."""
        engine = self._engine
        return {
            "storage": condition(engine.log, self._grace),
            "repository": "ok" if (engine.repo / "HEAD").is_file() else "the repository is missing",
            "configuration": "ok",
            "runner": "ok" if self._runners.connected else "no runner is connected",
        }

    def ready(self) -> bool:
        return all(value == "ok" for value in self.readiness().values())

    def heartbeat(self, beat: int) -> Heartbeat:
        engine, state = self._engine, self._engine.state
        graph = state.graph.state
        broken = failure_of(engine.log, self._grace)
        if broken and graph in GRAPH_ENDED and not engine.log.damage:
            broken = None  # it has ended well enough; the next round will see
        return Heartbeat(
            instance=self._identity.instance,
            epoch=engine.log.epoch,
            boot=engine.log.boot,
            round=state.graph.round,
            beat=beat,
            head=engine.log.durable_head(),
            graph=GraphState.FAILED if broken and graph not in GRAPH_ENDED else graph,
            ready=self.ready(),
            readiness=self.readiness(),
            failure=broken or state.graph.failure,
            delivery=delivery_proof(engine, state),
            attention=attention(state),
            bar=bar(engine, state),
            usage=usage(state),
            disk_used=self._consumption.disk,
            memory_used=self._consumption.memory,
            fingerprint=self._identity.fingerprint,
            specification=self._specification,
        )

    async def hear(self, answer: HeartbeatAnswer) -> None:
        """Open or close the gate, or cancel, as the control plane wants. Repeating changes nothing.

        ``stop`` for an earlier round than the present one is old news; round 0 stands for every round. On a disk so
        full that not even this can be written down it gives up, for heartbeats must go on: the next answer says it
        again, and a ``stop`` costs the runner its connection, which ends every tree. Raises StorageCorrupt when the
        control plane knows of events that this log lacks.
        """
        if self._engine.log.damage:
            return
        try:
            async with asyncio.timeout(HEAR_PATIENCE):
                await self._obey(answer)
        except TimeoutError:
            logger.warning("control.waits: %s cannot be written down yet", answer.desired)
            if answer.desired is Desired.STOP and self._is_about_now(answer):
                await self._runners.drop()

    def _is_about_now(self, answer: HeartbeatAnswer) -> bool:
        return answer.round >= self._engine.state.graph.round or not answer.round

    async def _obey(self, answer: HeartbeatAnswer) -> None:
        engine, graph = self._engine, self._engine.state.graph
        if answer.acknowledged:
            await engine.log.acknowledge(answer.acknowledged)
        match answer.desired:
            case Desired.RUN if graph.gate_round < answer.round:
                await engine.take(GateOpened(round=answer.round))
            case Desired.CANCEL if graph.state not in GRAPH_ENDED:
                wish = f"control-plane:cancel:{graph.round}"
                mode = CancelMode.CANCEL
                await engine.command(Command(id=wish, verb=CommandVerb.CANCEL, actor=CONTROL_PLANE, mode=mode))
            case Desired.STOP if self._is_about_now(answer):
                fact = GateClosed(reason=answer.reason or answer.status)
                await engine.take(fact, only_if=lambda state: state.graph.round == graph.round)
