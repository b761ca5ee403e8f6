"""Django's command line for this project."""

import os
import sys

from django.core.management import execute_from_command_line
from django.db import DatabaseError, connection


def main() -> None:
    """Run one command. A database that nobody has prepared is told in a sentence."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except DatabaseError as error:
        if "no such table" not in str(error) and "does not exist" not in str(error):
            raise
        place, why = connection.settings_dict["NAME"], str(error).splitlines()[0]
        sys.exit(
            f"manage.py: the database {place} is not prepared ({why}). ./caisson up prepares it; "
            "if the product lives in another state directory, name that by CAISSON_STATE_DIR."
        )


if __name__ == "__main__":
    main()
