"""Deliveries: taken from the sandbox, checked, pushed to exactly one branch, read back.

``receive`` and ``accept_chunk`` serve the supervisor, ``deliver`` and ``sweep`` the worker.
"""

from tasks_app.services.delivery.carry import deliver, sweep
from tasks_app.services.delivery.intake import accept_chunk, answer, find, receive

__all__ = ["accept_chunk", "answer", "deliver", "find", "receive", "sweep"]
