"""Let the database refuse changes to what never changes."""

from django.db import migrations

from workspaces_app.immutability import refuse, whole_table


class Migration(migrations.Migration):
    dependencies = [("policy_app", "0001_initial")]
    operations = [refuse(whole_table("policy_app_policyrevision"))]
