"""What beat sends. Code, not rows: two beats are harmless, and what one missed the next finds.

Periods and reasons are in ``tasks_app.timetable``; an entry that waited for a whole period is dropped.
"""

from typing import Any

from tasks_app.timetable import TIMETABLE

BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    f"sweep-{name}": {
        "task": "tasks.sweep",
        "args": (name,),
        "schedule": entry.period.total_seconds(),
        "options": {"expires": entry.period.total_seconds()},
    }
    for name, entry in TIMETABLE.items()
}
