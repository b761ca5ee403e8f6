"""One-time links that sign a user in: how the first person gets into a console without a password."""

from datetime import datetime, timedelta

from django.db import transaction

from workspaces_app import keys
from workspaces_app.access import Actor, actor_of_user
from workspaces_app.errors import Unauthenticated
from workspaces_app.models import SignInLink, User
from workspaces_app.services import audit
from workspaces_app.states import Verb

PREFIX = "csl"
DEFAULT_LIFE = timedelta(minutes=15)
REFUSAL = "This link is not valid any more: it works once and for a short time. Ask for a new one."


def create(*, user: User, by: Actor, now: datetime, life: timedelta = DEFAULT_LIFE) -> str:
    """Make a link for ``user`` and give the key that goes into its address. It is shown once."""
    key = keys.make(PREFIX)
    kept = keys.seal(key)
    with transaction.atomic():
        SignInLink.objects.create(
            key_id=key.key_id, user=user, pepper_id=kept.pepper_id, digest=kept.digest, expires_at=now + life
        )
        audit.record(
            by, Verb.SIGN_IN_LINK_CREATED, kind="user", object_id=str(user.pk), after={"username": user.username}
        )
    return key.text


def redeem(text: str, *, now: datetime) -> User:
    """Use a link up and give its user. Of two that race one wins. Raises Unauthenticated."""
    key = keys.read(text, PREFIX)
    link = SignInLink.objects.usable(now).select_related("user").filter(key_id=key.key_id).first() if key else None
    if key is None or link is None or not keys.opens(key, keys.Digest(link.pepper_id, link.digest)):
        raise Unauthenticated(REFUSAL)
    with transaction.atomic():
        if not SignInLink.objects.usable(now).filter(pk=link.pk).update(used_at=now):
            raise Unauthenticated(REFUSAL)
        audit.record(actor_of_user(link.user), Verb.SIGNED_IN, kind="user", object_id=str(link.user_id))
    return link.user
