"""The ASGI entry point: Django over HTTP, the console's sockets over WebSocket."""

import os
import sys
import threading
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.core.asgi import get_asgi_application

_http = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402 - needs a loaded app registry
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import OriginValidator  # noqa: E402
from django.conf import settings  # noqa: E402

from tasks_app.live.routing import websocket_urlpatterns  # noqa: E402

GRACE = 3.0  # seconds from the server's end to its process's; the process manager waits for longer

application = ProtocolTypeRouter(
    {
        "http": _http,
        "websocket": OriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), list(settings.ORIGINS)),
    }
)


def _end_soon() -> None:
    """End the process even if a request never does.

    One that waits for something stands in a thread that waits for the server's loop, and that loop has ended.
    """
    ender = threading.Timer(GRACE, os._exit, (0,))
    ender.daemon = True
    ender.start()


_server: Any = sys.modules.get("twisted.internet.reactor")  # what Daphne runs in; not there in a shell or a test
if _server is not None:
    _server.addSystemEventTrigger("before", "shutdown", _end_soon)
