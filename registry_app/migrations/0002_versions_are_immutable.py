"""Let the database refuse changes to what never changes."""

from django.db import migrations

from workspaces_app.immutability import refuse, whole_table

FLOW_VERSION = ("id", "flow_id", "number", "source", "canonical", "digest", "created_by_id", "created_at")
DRIVER_VERSION = ("id", "driver_id", "number", "canonical", "digest", "created_at")


class Migration(migrations.Migration):
    dependencies = [("registry_app", "0001_initial")]
    operations = [
        refuse(
            (
                *whole_table("registry_app_flowversion", columns=FLOW_VERSION),
                *whole_table("registry_app_driverversion", columns=DRIVER_VERSION),
            )
        )
    ]
