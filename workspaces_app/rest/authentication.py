"""Find out who sends a request: a token in the header, or the browser's session with its form token."""

from typing import Any

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from workspaces_app.access import Actor, actor_of_user
from workspaces_app.errors import Unauthenticated
from workspaces_app.models import User
from workspaces_app.services import tokens


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer csn_…``. A header that is there and wrong never falls back to a session."""

    def authenticate(self, request: Request) -> tuple[User, Actor] | None:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer":
            raise Unauthenticated("Send the token as Authorization: Bearer csn_….")
        address = str(request.META.get("REMOTE_ADDR", ""))
        actor = tokens.recognise(text.strip(), address=address, now=timezone.now())
        return _user(actor), actor

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="caisson"'


class SessionAuthentication(BaseAuthentication):
    """The signed-in person of a browser; writes need the form token (``X-CSRFToken``)."""

    def authenticate(self, request: Request) -> tuple[User, Actor] | None:
        user = getattr(request._request, "user", None)
        if not isinstance(user, User) or not user.is_active:
            return None
        _require_form_token(request)
        return user, actor_of_user(user)


def _user(actor: Actor) -> User:
    if actor.user_id is None:
        raise Unauthenticated("The member behind this token may not sign in any more.")
    return User.objects.get(pk=actor.user_id)


def _require_form_token(request: Request) -> None:
    def nothing(_: Any) -> None:
        return None

    check = CSRFCheck(nothing)  # type: ignore[arg-type]  # its answer is never asked for
    check.process_request(request._request)
    reason = check.process_view(request._request, nothing, (), {})  # type: ignore[arg-type]
    if reason:
        raise PermissionDenied(f"The form token is missing or wrong: {reason}", code="csrf_failed")
