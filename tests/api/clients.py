"""A client of the REST API that a test holds in its hand."""

import json
from typing import Any

from django.test import Client

from tasks_app.services import clock
from workspaces_app.models import Membership, User
from workspaces_app.services import audit, tokens
from workspaces_app.states import Scope

FORM_TOKEN = "t" * 32


class Api:
    """Sends JSON below ``/api/v1`` and gives Django's response; ``form_token`` False leaves the form token out."""

    def __init__(self, client: Client, headers: dict[str, str]) -> None:
        self.client = client
        self.headers = headers

    @classmethod
    def of_user(cls, user: User, *, form_token: bool = True) -> "Api":
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        client.force_login(user)
        client.cookies["caisson_csrf"] = FORM_TOKEN
        return cls(client, {"X-CSRFToken": FORM_TOKEN} if form_token else {})

    @classmethod
    def of_token(cls, membership: Membership, *scopes: Scope) -> "Api":
        made = tokens.create(
            membership=membership,
            label="test",
            scopes=scopes or tuple(Scope),
            by=audit.SYSTEM,
            now=clock.database_now(),
        )
        return cls.of_text(made.text)

    @classmethod
    def of_text(cls, token: str) -> "Api":
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        return cls(client, {"Authorization": f"Bearer {token}"})

    @classmethod
    def anonymous(cls) -> "Api":
        """Somebody who has a form token, as everybody can get one, and nothing else."""
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        client.cookies["caisson_csrf"] = FORM_TOKEN
        return cls(client, {"X-CSRFToken": FORM_TOKEN})

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """``headers`` in snake case: ``idempotency_key="k"``."""
        data = b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        place = path if path.startswith("/") else f"/api/v1/{path}"
        return self.client.generic(
            method, place, data, content_type="application/json", headers={**self.headers, **named}
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body, **headers)
