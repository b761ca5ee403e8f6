"""What can go wrong with the log."""


class AlreadyLocked(Exception):
    """Another process has this folder's log open."""


class StorageCorrupt(Exception):
    """What is stored is not what was written: the log refuses to go on. The message says what was found."""


class StorageFull(Exception):
    """There is no space for this commit; nothing of it was stored. It may be repeated when there is space again."""


class Superseded(Exception):
    """A row has changed since the caller read it (or a command id is taken); nothing of the change was stored."""
