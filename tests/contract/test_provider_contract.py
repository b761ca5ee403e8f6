"""Every provider against every case of the contract; what one cannot offer is skipped with its reason."""

import json

import pytest

from sandbox_providers.conformance.cases import Verdict, all_cases, judge
from sandbox_providers.conformance.harness import Harness, NotOffered
from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.conformance.scripted import ScriptedHarness
from sandbox_providers.contract import SandboxRef
from sandbox_supervisor.protocol.identity import Process
from tests.sandbox_folder import call, make_image


class LocalWithStandIns(LocalHarness):
    """Real launchers; supervisor and runner are small stand-ins, which can be asked what they were given."""

    def __init__(self) -> None:
        super().__init__(image=make_image, isolation="none")

    def recipients(self, ref: SandboxRef) -> dict[str, frozenset[str]]:
        endpoint = self.provider.observe(ref).endpoint
        if endpoint is None:
            raise NotOffered("it has ended")
        answer = call(endpoint, self.secrets()["supervisor"]["dial_token"].reveal())
        return {"supervisor": frozenset(json.loads(json.dumps(answer["keys"]))) - {"runner_nonce"}}

    def compute(self, name: str) -> int:
        """Count the runner's fled daemon, too, which carries no mark."""
        return super().compute(name) + sum(Process.of(int(pid)) is not None for pid in self._daemons(name))

    def _daemons(self, name: str) -> list[str]:
        try:
            return (self.layout.place(name) / "work" / "daemon").read_text().split()
        except FileNotFoundError:
            return []


HARNESSES = {"scripted": ScriptedHarness, "local": LocalWithStandIns}
CASES = {case.name: case for case in all_cases()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("provider", ["scripted", pytest.param("local", marks=pytest.mark.slow)])
def test_contract(provider: str, case: str) -> None:
    harness: Harness = HARNESSES[provider]()
    try:
        judgement = judge(CASES[case], harness)
    finally:
        harness.close()
    if judgement.verdict is Verdict.NOT_OFFERED:
        pytest.skip(f"{provider} does not offer it: {judgement.why}")
    assert judgement.verdict is Verdict.HOLDS, judgement.why
