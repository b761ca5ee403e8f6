"""The ASGI entry point: Django over HTTP, the console's sockets over WebSocket."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.core.asgi import get_asgi_application

_http = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402 - needs a loaded app registry
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import OriginValidator  # noqa: E402
from django.conf import settings  # noqa: E402

from tasks_app.live.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": _http,
        "websocket": OriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), list(settings.ORIGINS)),
    }
)
