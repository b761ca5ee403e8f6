"""Sign an agent in where nobody sits in front of it: only by what its driver's environment already holds.

Rules: https://agentclientprotocol.com/protocol/v1/draft/authentication. A method without a type is the agent's own
affair; ``env_var`` names the variables that it reads; one of type ``terminal`` is never passed to ``authenticate``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

METHODS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """``variables``: what must be set for it; None if the method does not say."""

    id: str
    name: str
    type: str
    variables: tuple[str, ...] | None


def offered(hello: dict[str, Any]) -> list[Method]:
    """Read the methods that ``initialize`` was answered with."""
    methods = hello.get("authMethods")
    return list(_methods(methods[:METHODS])) if isinstance(methods, list) else []


def _methods(methods: list[Any]) -> Iterator[Method]:
    for method in methods:
        if isinstance(method, dict) and isinstance(method.get("id"), str):
            texts = [text for text in (method.get("name"), method.get("description")) if isinstance(text, str) and text]
            kind = method.get("type")
            yield Method(
                id=method["id"][:200],
                name=": ".join(text[:200] for text in texts) or method["id"][:200],
                type=kind if isinstance(kind, str) else "agent",
                variables=_variables(method.get("vars")),
            )


def _variables(found: Any) -> tuple[str, ...] | None:
    if not isinstance(found, list):
        return None
    return tuple(str(each.get("name")) for each in found if isinstance(each, dict) and each.get("optional") is not True)


def usable(methods: list[Method], env: Mapping[str, str]) -> list[Method]:
    """Give the methods that need nobody, the surest first.

    Those are the ones whose variables are set, and then those that by their name read a key: others open a browser, or
    wait for a person who does not come.
    """
    told = [each for each in methods if each.type == "env_var" and each.variables and set(each.variables) <= set(env)]
    named = [each for each in methods if each.type == "agent" and ("key" in each.id or "env" in each.id)]
    return told + named


def needed(methods: list[Method]) -> str:
    """Say to a person what the agent offers and what can be done."""
    ways = "; ".join(method.name.rstrip(".") for method in methods)
    offer = f" It offers: {ways}." if ways else ""
    return (
        f"{offer} Nobody can sign in inside a sandbox: the driver's environment must name a model's address that needs"
        " no key or adds it, with a placeholder for the key."
    )
