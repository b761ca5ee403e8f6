"""``python -m sandbox_providers.conformance NAME``: hold a provider against the contract, a line per case.

NAME is ``local``, ``scripted``, or ``package.module:callable`` that gives a ``Harness``. Exits 1 if a case is broken.
"""

import signal
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module

from sandbox_providers.conformance.cases import Judgement, Verdict, all_cases, judge
from sandbox_providers.conformance.harness import Harness

_TERMINATED = 128 + signal.SIGTERM
HARNESSES = {
    "local": "sandbox_providers.conformance.local:LocalHarness",
    "scripted": "sandbox_providers.conformance.scripted:ScriptedHarness",
}


def harness_of(name: str) -> Callable[[], Harness]:
    """Find what makes the harness called ``name``. Raises LookupError."""
    module, _, attribute = HARNESSES.get(name, name).partition(":")
    if not attribute:
        raise LookupError(f"{name!r} is none of {', '.join(HARNESSES)}, nor package.module:callable")
    try:
        found: Callable[[], Harness] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"{name} cannot be loaded: {error}") from None
    return found


def line(judgement: Judgement) -> str:
    why = f"  ({judgement.why})" if judgement.why else ""
    return f"{judgement.verdict:<12} {judgement.case.replace('_', ' ')}{why}\n"


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # so that what was started is ended
    if len(argv) != 1:
        sys.stderr.write(f"usage: python -m sandbox_providers.conformance {{{','.join(HARNESSES)},MODULE:CALLABLE}}\n")
        return 2
    try:
        make = harness_of(argv[0])
    except LookupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    counts: Counter[Verdict] = Counter()
    for case in all_cases():
        harness = make()
        try:
            judgement = judge(case, harness)
        finally:
            harness.close()
        counts[judgement.verdict] += 1
        sys.stdout.write(line(judgement))
        sys.stdout.flush()
    sys.stdout.write(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict) + "\n")
    return 1 if counts[Verdict.BROKEN] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
