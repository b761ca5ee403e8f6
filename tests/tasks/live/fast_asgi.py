"""The product's own ASGI application with short waits and few sockets: what daphne serves in these tests."""

from config.asgi import application
from tasks_app.live import consumers, relay, sockets

consumers.ASK_AGAIN = 0.5
relay.PATIENCE = 4.0
relay.SLOWEST = 0.5
sockets.PER_TASK = 8  # each asks twice a second, one after another; more of them would leave a slow machine no time

__all__ = ["application"]
