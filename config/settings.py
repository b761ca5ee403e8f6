"""Django's settings, read once from the environment. Policy is not here: it has revisions of its own."""

import sys
from pathlib import Path
from typing import Any

from config import env, state
from config.databases import database
from config.logging import configure

BASE_DIR = Path(__file__).resolve().parent.parent
_environment = env.Environment()

# --- the state directory ---------------------------------------------------------------------------------------------
STATE_DIR = state.prepare(_environment.get(env.STATE_DIR, BASE_DIR / ".caisson"))
RUN_DIR = state.run_folder(STATE_DIR)
CONTROL_SOCKET = RUN_DIR / "control.sock"  # where local sandboxes call the internal API
SECRET_KEY = _environment.get(env.SECRET_KEY, "") or state.generated(STATE_DIR, "secret_key")
TOKEN_PEPPER_RING = _environment.get(env.TOKEN_PEPPER, ()) or env.TOKEN_PEPPER.read(
    state.generated(STATE_DIR, "token_pepper", prefix="k1:")
)  # ((key id, hex), …), the first one signs

# --- who may reach it ------------------------------------------------------------------------------------------------
DEBUG = _environment.get(env.DEBUG, False)
PORT = _environment.get(env.PORT, 8765)
ALLOWED_HOSTS = [*_environment.get(env.HOSTS, ("localhost", "127.0.0.1", "[::1]")), "control"]
ORIGINS = _environment.get(env.ORIGINS, (f"http://localhost:{PORT}", f"http://127.0.0.1:{PORT}"))
CSRF_TRUSTED_ORIGINS = list(ORIGINS)
PUBLIC_URL = ORIGINS[0]
_secure = PUBLIC_URL.startswith("https://")
SESSION_COOKIE_SECURE = _secure
CSRF_COOKIE_SECURE = _secure
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "caisson_session"
CSRF_COOKIE_NAME = "caisson_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'", *(origin.replace("http", "ws", 1) for origin in ORIGINS)],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = (
    2 * 1024 * 1024
)  # bytes; sandboxes' requests are bounded lower, see tasks_app.internal.gate

# --- applications ----------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "workspaces_app",
    "policy_app",
    "registry_app",
    "tasks_app",
]
AUTH_USER_MODEL = "workspaces_app.User"
AUTH_PASSWORD_VALIDATORS = [  # of the admin's forms; people sign in by link
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("MinimumLengthValidator", {"min_length": 12}),
        ("UserAttributeSimilarityValidator", {}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.requests.RequestIdMiddleware",
    "config.requests.PrivateMiddleware",
    "tasks_app.problems.ProblemMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
APPEND_SLASH = False
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"

# --- database, Redis, files ------------------------------------------------------------------------------------------
DATABASES = {"default": database(_environment.get(env.DATABASE_URL, ""), STATE_DIR)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = _environment.get(env.REDIS_URL, f"unix://{RUN_DIR / 'redis.sock'}")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "caisson",
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # The layer's blocking reads outlast the client's default time-out: without None they die after 5 s.
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None, "max_connections": 512}]},
    }
}
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            "location": STATE_DIR / "files",
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = STATE_DIR / "static"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# --- sandboxes -------------------------------------------------------------------------------------------------------
PROVIDERS = _environment.get(env.PROVIDERS, ("local",))
LOCAL_ISOLATION = _environment.get(env.LOCAL_ISOLATION, "auto")
SANDBOX_IMAGE = _environment.get(env.SANDBOX_IMAGE, "")  # empty: the digest that ``images/current`` names
PRIVATE_REMOTES = _environment.get(env.PRIVATE_REMOTES, ())

# --- background work -------------------------------------------------------------------------------------------------
WORKER_THREADS = _environment.get(env.WORKER_THREADS, 8)

# --- API -------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "workspaces_app.rest.schema.Schema",
    "EXCEPTION_HANDLER": "tasks_app.problems.handle",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["workspaces_app.rest.parsing.StrictJSONParser"],
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Caisson",
    "DESCRIPTION": "A control plane for agent work: one task, one sandbox.",
    "VERSION": "v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "PREPROCESSING_HOOKS": ["workspaces_app.rest.schema.only_ours"],
    "POSTPROCESSING_HOOKS": ["workspaces_app.rest.schema.add_shapes"],
}

# --- language, time, logs --------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
LOGGING_CONFIG = None
configure(
    level=_environment.get(env.LOG_LEVEL, "info"),
    style=_environment.get(env.LOG_FORMAT, "auto"),
    terminal=sys.stderr.isatty(),
)
