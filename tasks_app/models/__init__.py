"""The rows of a task: its record, its last contact, what it delivered, what was kept, what happened.

No table holds nodes, attempts, sessions or messages: these are the supervisor's. A test counts the models.
"""

from tasks_app.models.bookkeeping import Deployment, IdempotencyRecord, Lease, Quota
from tasks_app.models.outcome import Archive, Delivery, TaskSnapshot
from tasks_app.models.story import TaskCredential, TaskEvent
from tasks_app.models.task import Task, TaskContact

__all__ = [
    "Archive",
    "Delivery",
    "Deployment",
    "IdempotencyRecord",
    "Lease",
    "Quota",
    "Task",
    "TaskContact",
    "TaskCredential",
    "TaskEvent",
    "TaskSnapshot",
]
