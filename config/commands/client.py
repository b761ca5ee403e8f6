"""The command line's client of the REST API. It can do nothing that any other client could not."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 180.0  # seconds that a console may be away (a restart) before a command gives up
PAUSE = 0.5


class ApiProblem(Exception):
    """The API said no. ``problem`` is its problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP {status}"))
        self.status = status
        self.problem = problem

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))


class ConsoleAway(Exception):
    """Nobody has answered for PATIENCE seconds."""


@dataclass(slots=True)
class Client:
    """Every call waits while the console is away; a POST carries a key, so that a repeated one is the same one."""

    url: str
    token: str
    _http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        self._http = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=40.0, trust_env=False)

    def get(self, path: str, **query: Any) -> Any:
        """Read a resource. Raises ApiProblem, ConsoleAway."""
        return self._ask("GET", path, params={name: value for name, value in query.items() if value is not None})

    def post(self, path: str, body: Mapping[str, Any], *, key: str, **headers: str) -> Any:
        """Do something once, however often it is sent. Raises ApiProblem, ConsoleAway."""
        sent = {"Idempotency-Key": key} | {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask("POST", path, json=body, headers=sent)

    def delete(self, path: str) -> Any:
        """Remove a resource; asking again is harmless. Raises ApiProblem, ConsoleAway."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        give_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                words = str(error)
            else:
                if _is_an_answer(answer):
                    return _read(answer)
                words = f"HTTP {answer.status_code}"
            if time.monotonic() > give_up_at:
                raise ConsoleAway(f"{self.url} has not answered for {PATIENCE:.0f} s ({words}).")
            time.sleep(PAUSE)


def _is_an_answer(answer: httpx.Response) -> bool:
    """Say whether the product itself has spoken and meant it.

    A 5xx of its own (a sandbox that is away) is a problem document; ``unavailable`` among them asks to come again.
    """
    if answer.status_code == 429:
        return False
    if answer.status_code < 500:
        return True
    said = answer.headers.get("content-type", "").startswith("application/problem+json")
    return said and bool(answer.json().get("code") != "unavailable")


def _read(answer: httpx.Response) -> Any:
    body = answer.json() if answer.content else {}
    if answer.is_success:
        return body
    raise ApiProblem(answer.status_code, body if isinstance(body, dict) else {})
