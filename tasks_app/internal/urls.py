"""``/internal/v1/``: the routes of sandboxes."""

from django.urls import path, re_path

from tasks_app.internal import views

urlpatterns = [
    path("heartbeat", views.heartbeat, name="internal-heartbeat"),
    path("spec", views.spec, name="internal-spec"),
    re_path(r"^artefacts/(?P<digest>[0-9a-f]{64})$", views.artefact, name="internal-artefact"),
    path("deliveries", views.deliveries, name="internal-deliveries"),
    path("deliveries/<str:delivery_id>", views.one_delivery, name="internal-delivery"),
    path("deliveries/<str:delivery_id>/bundle", views.bundle, name="internal-bundle"),
    path("archive/<str:kind>", views.archived, name="internal-archive"),
]
