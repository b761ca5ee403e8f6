"""The routes of tasks and of the deployment, below ``/api/v1/``."""

from django.urls import path

from tasks_app.api import kept, live, meta, tasks

ATTEMPT = "tasks/<str:task_id>/attempts/<str:attempt_id>"

urlpatterns = [
    path("meta", meta.Meta.as_view(), name="api-meta"),
    path("schemas/<str:name>", meta.Schemas.as_view(), name="api-schema-of"),
    path("schema", meta.Description.as_view(), name="api-schema"),
    path("tasks", tasks.Tasks.as_view(), name="api-tasks"),
    path("tasks:validate", tasks.TaskTrial.as_view(), name="api-tasks-validate"),
    path("tasks/<str:task_id>", tasks.OneTask.as_view(), name="api-task"),
    path("tasks/<str:task_id>/cancel", tasks.TaskCancel.as_view(), name="api-task-cancel"),
    path("tasks/<str:task_id>/frozen", tasks.TaskFrozen.as_view(), name="api-task-frozen"),
    path("tasks/<str:task_id>/events", kept.TaskEvents.as_view(), name="api-task-events"),
    path("tasks/<str:task_id>/snapshot", kept.TaskFinalSnapshot.as_view(), name="api-task-snapshot"),
    path("tasks/<str:task_id>/archive", kept.TaskArchive.as_view(), name="api-task-archive"),
    path("tasks/<str:task_id>/archive/<str:digest>", kept.TaskArchivedFile.as_view(), name="api-task-archived-file"),
    path("tasks/<str:task_id>/deliveries", kept.TaskDeliveries.as_view(), name="api-deliveries"),
    path("tasks/<str:task_id>/deliveries/<str:delivery_id>", kept.OneDelivery.as_view(), name="api-delivery"),
    path("tasks/<str:task_id>/deliveries/<str:delivery_id>/patch", kept.DeliveryPatch.as_view(), name="api-patch"),
    path("tasks/<str:task_id>/graph", live.TaskGraph.as_view(), name="api-task-graph"),
    path("tasks/<str:task_id>/stream", live.TaskStream.as_view(), name="api-task-stream"),
    path("tasks/<str:task_id>/commands", live.TaskCommands.as_view(), name="api-task-commands"),
    path("tasks/<str:task_id>/nodes/<str:key>", live.TaskNode.as_view(), name="api-task-node"),
    path(ATTEMPT, live.TaskAttempt.as_view(), name="api-attempt"),
    path(f"{ATTEMPT}/log", live.AttemptLog.as_view(), name="api-attempt-log"),
    path(f"{ATTEMPT}/files", live.AttemptFiles.as_view(), name="api-attempt-files"),
    path(f"{ATTEMPT}/files/content", live.AttemptFile.as_view(), name="api-attempt-file"),
    path(f"{ATTEMPT}/diff", live.AttemptDiff.as_view(), name="api-attempt-diff"),
    path(f"{ATTEMPT}/artefacts", live.AttemptArtefacts.as_view(), name="api-attempt-artefacts"),
    path(f"{ATTEMPT}/artefacts/<str:digest>", live.AttemptArtefact.as_view(), name="api-attempt-artefact"),
]
