"""API tokens: create, recognise, revoke."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from django.db import transaction

from workspaces_app import keys
from workspaces_app.access import Actor, Permission, actor_of_token, authorise
from workspaces_app.errors import Forbidden, Refused, Unauthenticated
from workspaces_app.models import ApiToken, Membership
from workspaces_app.services import audit
from workspaces_app.states import Scope, Verb

PREFIX = "csn"
DEFAULT_LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=366)
USE_IS_NOTED_EVERY = timedelta(minutes=1)
LABEL_LIMIT = 100  # characters

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class NewToken:
    """The row, and the text that is shown this once."""

    token: ApiToken
    text: str


def create(
    *,
    membership: Membership,
    label: str,
    scopes: Collection[Scope],
    by: Actor,
    now: datetime,
    life: timedelta = DEFAULT_LIFE,
    cidrs: Collection[str] = (),
) -> NewToken:
    """Make a token for a member. Raises Refused for a label, scopes, life or networks that cannot be.

    A token makes no token that may do more than itself, or from elsewhere: Forbidden. What it makes ends with it at
    the latest, and comes from its networks when none are named.
    """
    wanted = " ".join(label.split())
    if not 0 < len(wanted) <= LABEL_LIMIT or not wanted.isprintable():
        raise Refused(f"A label has 1 to {LABEL_LIMIT} printable characters.", code="token_label", pointer="/label")
    if not scopes:
        raise Refused("A token needs at least one scope.", code="token_without_scope")
    if by.scopes is not None and not set(scopes) <= by.scopes:
        raise Forbidden("A token cannot make one with scopes that it has not itself.", code="scope_escalation")
    if not timedelta(0) < life <= LONGEST_LIFE:
        raise Refused(f"A token lives at most {LONGEST_LIFE.days} days.", code="token_life")
    networks = _networks(cidrs, within=by.networks)
    key = keys.make(PREFIX)
    kept = keys.seal(key)
    with transaction.atomic():
        token = ApiToken.objects.create(
            key_id=key.key_id,
            membership=membership,
            label=wanted,
            pepper_id=kept.pepper_id,
            digest=kept.digest,
            scopes=sorted({str(scope) for scope in scopes}),
            cidrs=networks,
            expires_at=min(now + life, by.expires_at or now + life),
        )
        audit.record(
            by,
            Verb.TOKEN_CREATED,
            kind="token",
            object_id=token.key_id,
            workspace_id=membership.workspace_id,
            after={"label": wanted, "scopes": token.scopes, "member": membership.user.username},
        )
    return NewToken(token, key.text)


def recognise(text: str, *, address: str, now: datetime) -> Actor:
    """Say who sends this token from ``address``. Raises Unauthenticated, with one sentence for every reason."""
    key = keys.read(text, PREFIX)
    token = (
        ApiToken.objects.usable(now).select_related("membership__user").filter(key_id=key.key_id).first()
        if key
        else None
    )
    kept = keys.Digest(token.pepper_id, token.digest) if token else None
    if key is None or token is None or kept is None or not keys.opens(key, kept) or not _may_come_from(token, address):
        raise Unauthenticated("The token is not valid here: unknown, expired, revoked, or not for this address.")
    ApiToken.objects.filter(key_id=token.key_id).not_used_since(now - USE_IS_NOTED_EVERY).update(last_used_at=now)
    return actor_of_token(token)


def revoke(token: ApiToken, *, by: Actor, now: datetime) -> None:
    """End a token at once. A second call changes nothing. Raises Forbidden or NotVisible."""
    own = token.membership.user_id == by.user_id
    needed = Permission.MANAGE_OWN_TOKENS if own else Permission.MANAGE_MEMBERS
    authorise(by, needed, token.membership.workspace_id)
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
            return
        audit.record(
            by, Verb.TOKEN_REVOKED, kind="token", object_id=token.key_id, workspace_id=token.membership.workspace_id
        )


def _networks(cidrs: Collection[str], *, within: Collection[str]) -> list[str]:
    """Give the networks in one spelling; ``within`` those of whoever asks. Raises Refused, Forbidden."""
    wanted = [_network(cidr) for cidr in cidrs or within]
    limits = [_network(cidr) for cidr in within]
    if limits and not all(any(_lies_in(network, limit) for limit in limits) for network in wanted):
        raise Forbidden("A token cannot make one for networks that it is not bound to.", code="network_escalation")
    return [str(network) for network in wanted]


def _network(cidr: str) -> Network:
    try:
        return ip_network(cidr)
    except ValueError:
        raise Refused(f"{cidr!r} is not a network such as 10.0.0.0/8.", code="token_cidr") from None


def _lies_in(network: Network, limit: Network) -> bool:
    if isinstance(network, IPv4Network) and isinstance(limit, IPv4Network):
        return network.subnet_of(limit)
    if isinstance(network, IPv6Network) and isinstance(limit, IPv6Network):
        return network.subnet_of(limit)
    return False


def _may_come_from(token: ApiToken, address: str) -> bool:
    if not token.cidrs:
        return True
    try:
        where = ip_address(address)
    except ValueError:
        return False
    return any(where in ip_network(cidr) for cidr in token.cidrs)
