"""The product's own ASGI application with short waits: what daphne serves in these tests."""

from config.asgi import application
from tasks_app.live import consumers, relay

consumers.ASK_AGAIN = 0.5
relay.PATIENCE = 4.0
relay.SLOWEST = 0.5

__all__ = ["application"]
