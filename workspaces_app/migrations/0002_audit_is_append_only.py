"""Let the database refuse changes to what never changes."""

from django.db import migrations

from workspaces_app.immutability import refuse, whole_table


class Migration(migrations.Migration):
    dependencies = [("workspaces_app", "0001_initial")]
    operations = [refuse(whole_table("workspaces_app_auditevent"))]
