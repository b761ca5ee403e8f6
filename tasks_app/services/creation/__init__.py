"""Make a task: everything it depends on is found, checked and frozen before there is a row.

``create_task`` and ``validate_task`` are the same path; the second one stops before the insert.
"""

from tasks_app.services.creation.create import Created, create_task, validate_task
from tasks_app.services.creation.find import lost_capabilities
from tasks_app.services.creation.prepare import Prepared
from tasks_app.services.creation.request import TaskRequest

__all__ = ["Created", "Prepared", "TaskRequest", "create_task", "lost_capabilities", "validate_task"]
