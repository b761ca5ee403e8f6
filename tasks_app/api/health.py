"""``/livez`` and ``/readyz``: for whoever watches the processes."""

from django.urls import path

from tasks_app.api import meta

urlpatterns = [
    path("livez", meta.Alive.as_view(), name="livez"),
    path("readyz", meta.Ready.as_view(), name="readyz"),
]
