"""The transactional log: every transition of the graph, its events, its wishes for side effects, in one file."""

from sandbox_supervisor.log.database import Committed
from sandbox_supervisor.log.errors import AlreadyLocked, StorageCorrupt, StorageFull, Superseded
from sandbox_supervisor.log.log import Log

__all__ = ["AlreadyLocked", "Committed", "Log", "StorageCorrupt", "StorageFull", "Superseded"]
