"""Commands of ``manage.py`` about tasks."""
