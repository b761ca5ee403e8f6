"""Sign in by a one-time link, sign out."""

from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from workspaces_app.errors import Unauthenticated
from workspaces_app.services import sign_in_links

BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@require_GET
def sign_in(request: HttpRequest) -> HttpResponse:
    """Say how to sign in; somebody who is signed in goes to their tasks."""
    if request.user.is_authenticated:
        return redirect("tasks")
    return render(request, "console/sign_in.html", status=200)


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in_link(request: HttpRequest, key: str) -> HttpResponse:
    """Ask for one press of a button, then use the link up: a preview of the page signs nobody in."""
    if request.method == "GET":
        return render(request, "console/sign_in.html", {"key": key})
    try:
        user = sign_in_links.redeem(key, now=timezone.now())
    except Unauthenticated as refused:
        return render(request, "console/sign_in.html", {"refused": refused.message}, status=403)
    login(request, user, backend=BACKEND)
    return redirect("tasks")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return redirect("sign-in")


urlpatterns = [
    path("sign-in", sign_in, name="sign-in"),
    path("sign-in/<str:key>", sign_in_link, name="sign-in-link"),
    path("sign-out", sign_out, name="sign-out"),
]
