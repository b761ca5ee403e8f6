"""The settings of tests: a state directory of its own for each process, everything else as in production."""

import atexit
import os
import shutil
import tempfile

_state = tempfile.mkdtemp(prefix="caisson-t-")
atexit.register(shutil.rmtree, _state, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("CAISSON_") and not name.startswith("CAISSON_TEST_")]:
    if _name not in {"CAISSON_CHROMIUM"}:
        del os.environ[_name]
os.environ["CAISSON_STATE_DIR"] = _state
os.environ["CAISSON_LOG_LEVEL"] = "warning"
os.environ.pop("REDIS_URL", None)

from config.settings import *  # noqa: E402, F403 - after the environment is set

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast; no test is about hashing
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405 - a file, so that several connections really meet
    DATABASES["default"]["TEST"] = {"NAME": os.path.join(_state, "test.sqlite3")}  # noqa: F405, PTH118
