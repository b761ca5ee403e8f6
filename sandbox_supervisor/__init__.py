"""Everything that runs inside a sandbox: launcher, supervisor, runner, driver hosts, materialisation.

Nothing here knows Django, Celery or the control plane's database. Only ``sandbox_supervisor.protocol`` is public.
"""
