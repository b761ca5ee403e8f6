"""The policy in the Django admin: current, history, a draft with its difference and reach, and publication."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from policy_app.forms import PolicyForm
from policy_app.models import PolicyRevision
from policy_app.reading import holders, shown_differences
from policy_app.services.publish import current_revision, publish_revision
from policy_app.values import NAMES
from workspaces_app.access import Permission, actor_of_user, allowed
from workspaces_app.admin import ReadOnlyAdmin
from workspaces_app.errors import ControlPlaneError


@admin.register(PolicyRevision)
class PolicyRevisionAdmin(ReadOnlyAdmin):
    """The history; a row is read-only, and the only way on is a new revision."""

    list_display = ("number", "published_at", "author", "message")
    change_list_template = "admin/policy_app/history.html"
    change_form_template = "admin/policy_app/revision.html"

    def get_urls(self) -> list[URLPattern]:
        draft = path("draft/", self.admin_site.admin_view(self.draft_view), name="policy_app_draft")
        return [draft, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        extra = {"current": _current(), "may_publish": _may_publish(request)}
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        revision = self.get_object(request, object_id)
        extra = dict(extra_context or {})
        if isinstance(revision, PolicyRevision):
            extra["changes"] = shown_differences(revision.parent.values, revision.values) if revision.parent else []
            extra["holders"] = holders(revision)
            extra["may_publish"] = _may_publish(request)
        return super().change_view(request, object_id, form_url, extra)

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """Write a revision, from the values of revision ``?from=N``; it is published after a look at the difference."""
        if not _may_publish(request):
            raise PermissionDenied
        current = current_revision()
        if request.method != "POST":
            return self._draft_page(request, current, PolicyForm(initial=_initial(request, current)))
        form = PolicyForm(request.POST)
        if form.is_valid() and "publish" in request.POST:
            return self._publish(request, current, form)
        return self._draft_page(request, current, form)

    def _publish(self, request: HttpRequest, current: PolicyRevision, form: PolicyForm) -> HttpResponse:
        try:
            revision = publish_revision(
                based_on=form.cleaned_data["based_on"],
                message=form.cleaned_data["message"],
                author=actor_of_user(request.user),
                values=form.values,
                now=timezone.now(),
            )
        except ControlPlaneError as error:
            form.add_error(None, error.message)
            return self._draft_page(request, current, form)
        messages.success(request, f"Revision {revision.number} is published. Tasks created from now on follow it.")
        return HttpResponseRedirect(reverse("admin:policy_app_policyrevision_changelist"))

    def _draft_page(self, request: HttpRequest, current: PolicyRevision, form: PolicyForm) -> HttpResponse:
        ready = form.is_bound and form.is_valid()
        context = {
            **self.admin_site.each_context(request),
            "title": "Draft of a new policy revision",
            "opts": self.model._meta,
            "form": form,
            "current": current,
            "holders": holders(current),
            "changes": shown_differences(current.values, form.values) if ready else [],
            "previewed": ready,
        }
        return TemplateResponse(request, "admin/policy_app/draft.html", context)


def _current() -> PolicyRevision | None:
    try:
        return current_revision()
    except ControlPlaneError:
        return None


def _may_publish(request: HttpRequest) -> bool:
    return allowed(actor_of_user(request.user), Permission.PUBLISH_POLICY)


def _initial(request: HttpRequest, current: PolicyRevision) -> dict[str, Any]:
    wanted = request.GET.get("from", "")
    source = PolicyRevision.objects.filter(number=wanted).first() if wanted.isdecimal() and len(wanted) < 9 else None
    start = source or current
    message = f"Back to revision {source.number}" if source else ""
    return {name: getattr(start, name) for name in NAMES} | {"based_on": current.number, "message": message}
