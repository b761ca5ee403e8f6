"""The console's addresses."""

from django.urls import path

from tasks_app.web import actions, listing, taskpage

urlpatterns = [
    path("", listing.tasks, name="tasks"),
    path("tasks/<str:task_id>", taskpage.task, name="task"),
    path("tasks/<str:task_id>/answer/<str:request_id>", actions.answer, name="task-answer"),
    path("tasks/<str:task_id>/command", actions.command, name="task-command"),
    path("tasks/<str:task_id>/cancel", actions.cancel, name="task-cancel"),
    path("tasks/<str:task_id>/delete", actions.delete, name="task-delete"),
]
