"""Find the workspace that a request is about."""

from workspaces_app.access import Actor
from workspaces_app.errors import NotVisible, Refused
from workspaces_app.models import Workspace


def workspace_for(actor: Actor, slug: str, *, in_query: bool = False) -> Workspace:
    """Give the actor's workspace named ``slug``, or their only one. Raises NotVisible, Refused (several).

    ``in_query`` says where the slug stood, or could have stood: else in the body.
    """
    place = {"parameter": "workspace"} if in_query else {"pointer": "/workspace"}
    theirs = Workspace.objects.filter(pk__in=actor.workspaces)
    if slug:
        found = theirs.filter(slug=slug).first()
        if found is None:
            raise NotVisible(f"There is no workspace {slug!r}.", code="workspace_unknown", **place)
        return found
    several = list(theirs.order_by("slug")[:2])
    if not several:
        raise NotVisible("You are a member of no workspace.", code="workspace_unknown", **place)
    if len(several) > 1:
        raise Refused("You are a member of several workspaces; name one.", code="workspace_needed", **place)
    return several[0]
