"""Bound how often one member may ask, in fixed windows. A cache that is away stops nobody."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from django.core.cache import cache

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` in each window of ``seconds``."""

    count: int
    seconds: int = 60


RATES: Mapping[str, Rate] = {
    "read": Rate(1200),
    "write": Rate(300),
    "create": Rate(60),
    "sandbox": Rate(6000),
    "password": Rate(10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one caller stands in the present window; ``reset`` is in seconds."""

    limit: int
    remaining: int
    reset: int
    exceeded: bool = False

    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }


def count(scope: str, who: str, *, now: float | None = None) -> Standing:
    """Count one request of ``who`` in ``scope`` and say how they stand."""
    rate = RATES[scope]
    moment = time.time() if now is None else now
    window, into = divmod(moment, rate.seconds)
    key = f"throttle:{scope}:{who}:{int(window)}"
    try:
        cache.add(key, 0, timeout=2 * rate.seconds)
        used = cache.incr(key)
    except Exception as error:  # noqa: BLE001 - whatever ails the cache, the request goes on
        log.warning("throttle_unavailable", error=type(error).__name__)
        used = 0
    return Standing(
        limit=rate.count,
        remaining=max(0, rate.count - used),
        reset=max(1, int(rate.seconds - into)),
        exceeded=used > rate.count,
    )
