"""How materialisation says that it failed: code, stage, item and cause, small and safe to show."""

from sandbox_supervisor.protocol import codec, folder

_ITEM, _CAUSE = 300, 2000  # characters


class Failed(Exception):  # the outcome's own name
    """``code`` is a stable word, ``stage`` where it happened, ``item`` what it was about, ``cause`` why, for people."""

    def __init__(self, code: str, *, stage: str, item: str, cause: str) -> None:
        super().__init__(cause)
        self.code = code
        self.stage = stage
        self.item = item
        self.cause = cause

    def record(self) -> folder.MaterialisationFailure:
        """Give the record for ``failure.json``; its JSON has at most ``folder.FAILURE_LIMIT`` bytes."""
        room = _CAUSE
        while True:
            item, cause = _shown(self.item, _ITEM), _shown(self.cause, room)
            record = folder.MaterialisationFailure(code=self.code, stage=self.stage, item=item, cause=cause)
            if len(codec.encode(record)) <= folder.FAILURE_LIMIT:
                return record
            room = room * 3 // 4  # what is not ASCII takes more bytes than characters


def _shown(text: str, limit: int) -> str:
    """Keep lines, drop what a terminal would obey: causes may repeat what a remote said."""
    kept = "".join(character if character.isprintable() or character == "\n" else "�" for character in text)
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
