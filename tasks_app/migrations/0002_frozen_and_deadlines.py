from django.db import migrations

from tasks_app.refusals import REFUSALS
from workspaces_app.immutability import refuse


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0001_initial")]
    operations = [refuse(REFUSALS)]
