"""The register of cases, and how one is judged."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

from sandbox_providers.conformance.harness import Harness, NotOffered
from sandbox_providers.contract import ProviderError

Run = Callable[[Harness], None]
_SECTIONS = ("creating", "observing", "ending")


class Verdict(StrEnum):
    HOLDS = "holds"
    BROKEN = "broken"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    case: str
    verdict: Verdict
    why: str = ""


_CASES: list[Case] = []


def case(run: Run) -> Run:
    """Register a function as a case; its name says what must hold."""
    _CASES.append(Case(name=run.__name__, run=run))
    return run


def all_cases() -> tuple[Case, ...]:
    for section in _SECTIONS:
        import_module(f"sandbox_providers.conformance.{section}")
    return tuple(_CASES)


def judge(chosen: Case, harness: Harness) -> Judgement:
    """Run one case. An answer that the contract does not know is as broken as a wrong one."""
    try:
        chosen.run(harness)
    except NotOffered as reason:
        return Judgement(case=chosen.name, verdict=Verdict.NOT_OFFERED, why=str(reason))
    except AssertionError as broken:
        return Judgement(case=chosen.name, verdict=Verdict.BROKEN, why=str(broken))
    except ProviderError as error:
        return Judgement(case=chosen.name, verdict=Verdict.BROKEN, why=f"{type(error).__name__} {error.code}: {error}")
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything, and the other cases are still to be judged
        return Judgement(case=chosen.name, verdict=Verdict.BROKEN, why=f"{type(error).__name__}: {error}")
    return Judgement(case=chosen.name, verdict=Verdict.HOLDS)
