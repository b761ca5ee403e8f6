"""The WebSocket routes of the control plane."""

from django.urls import re_path

from tasks_app.live.consumers import Console

websocket_urlpatterns = [
    re_path(r"^ws/v1/tasks/(?P<task_id>tsk_[0-9a-z]{1,40})/console$", Console.as_asgi()),
]
