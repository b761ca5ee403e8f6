"""Repositories of a workspace, and the local folders they may lie in."""

import re
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction

from sandbox_supervisor.protocol.git_rules import valid_branch
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.errors import Conflict, Refused
from workspaces_app.models import SLUG, AllowedRoot, Repository, Workspace
from workspaces_app.remotes import Places, Resolve, addresses_of, check_remote, real_folder
from workspaces_app.services import audit
from workspaces_app.states import Verb

_SYSTEM_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"), Path("/etc"))
DEMO_FOLDER = "demo"  # the one folder of the state directory whose repositories may be used


def allow_root(*, workspace: Workspace, path: str, by: Actor) -> AllowedRoot:
    """Let repositories of ``workspace`` lie below ``path``. A second call gives the same row.

    Raises Refused for what is no folder, for a system folder and for the state directory, the demo's folder excepted.
    """
    authorise(by, Permission.ALLOW_ROOT)
    real = real_folder(path)
    state = Path(settings.STATE_DIR).resolve()
    if real == Path("/") or any(real.is_relative_to(folder) for folder in _SYSTEM_FOLDERS):
        raise Refused(f"{real} is a system folder; allow a folder that holds repositories.", code="root_refused")
    if real.is_relative_to(state) and not real.is_relative_to(state / DEMO_FOLDER):
        raise Refused(f"{real} is Caisson's own state; allow another folder.", code="root_refused")
    with transaction.atomic():
        root, created = AllowedRoot.objects.get_or_create(
            workspace=workspace, path=str(real), defaults={"created_by_id": by.user_id}
        )
        if created:
            audit.record(
                by,
                Verb.ROOT_ALLOWED,
                kind="allowed_root",
                object_id=str(root.pk),
                workspace_id=workspace.pk,
                after={"path": root.path},
            )
    return root


def forbid_root(root: AllowedRoot, *, by: Actor) -> None:
    """Take back what ``allow_root`` gave: later transfers from or to repositories below it are refused."""
    authorise(by, Permission.ALLOW_ROOT)
    with transaction.atomic():
        audit.record(
            by,
            Verb.ROOT_FORBIDDEN,
            kind="allowed_root",
            object_id=str(root.pk),
            workspace_id=root.workspace_id,
            before={"path": root.path},
        )
        root.delete()


def register(
    *,
    workspace: Workspace,
    slug: str,
    clone_url: str,
    by: Actor,
    push_url: str = "",
    default_branch: str = "",
    resolve: Resolve = addresses_of,
) -> Repository:
    """Add a repository, or give the one that is there with the same addresses.

    Nothing is contacted but the resolver. Raises Refused (slug, address, branch), Conflict (the slug has other
    addresses), Unavailable (no such host).
    """
    authorise(by, Permission.MANAGE_REPOSITORIES, workspace.pk)
    if not re.fullmatch(SLUG.regex, slug):
        raise Refused(f"{slug!r} is no repository slug: {SLUG.message}", code="slug_malformed")
    if default_branch and not valid_branch(default_branch):
        raise Refused(f"{default_branch!r} is no branch name that may be used.", code="branch_malformed")
    addresses = {
        "clone_url": checked_address(workspace, clone_url, resolve=resolve),
        "push_url": checked_address(workspace, push_url, resolve=resolve) if push_url else "",
    }
    try:
        return _insert(workspace, slug, by, {**addresses, "default_branch": default_branch})
    except IntegrityError:
        return _adopt(workspace, slug, addresses)


def checked_address(workspace: Workspace, text: str, *, resolve: Resolve = addresses_of) -> str:
    """Give the address as Git is given it, if this workspace may use it now; checked again before every transfer."""
    roots = AllowedRoot.objects.filter(workspace=workspace).values_list("path", flat=True)
    places = Places(
        roots=tuple(Path(root) for root in roots),
        closed=(Path(settings.STATE_DIR).resolve(),),
        private_hosts=frozenset(host.lower() for host in settings.PRIVATE_REMOTES),
    )
    return check_remote(text, places=places, resolve=resolve).text


def _insert(workspace: Workspace, slug: str, by: Actor, values: dict[str, str]) -> Repository:
    with transaction.atomic():
        repository = Repository.objects.create(workspace=workspace, slug=slug, **values)
        audit.record(
            by,
            Verb.REPOSITORY_REGISTERED,
            kind="repository",
            object_id=repository.pk,
            workspace_id=workspace.pk,
            after={"slug": slug, **values},
        )
    return repository


def _adopt(workspace: Workspace, slug: str, addresses: dict[str, str]) -> Repository:
    there = Repository.objects.get(workspace=workspace, slug=slug)
    if {name: getattr(there, name) for name in addresses} != addresses:
        raise Conflict(
            f"The workspace has a repository {slug!r} with another address: {there.clone_url}.",
            code="slug_taken",
            slug=slug,
        )
    return there
