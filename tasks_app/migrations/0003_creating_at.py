from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0002_frozen_and_deadlines'),
    ]

    operations = [
        migrations.AddField(
            model_name='task',
            name='creating_at',
            field=models.DateTimeField(blank=True, help_text='When the provider was last to be asked for the sandbox.', null=True),
        ),
    ]
