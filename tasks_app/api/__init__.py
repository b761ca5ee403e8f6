"""The REST API of tasks, below ``/api/v1/``."""
