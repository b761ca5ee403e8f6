"""Read the environment: the only place that does, strictly; every key is remembered for the reference page.

A value that cannot be understood is an error that names the key, what it holds and what is allowed; never guessed.
A key ``X`` may be given as a file through ``X_FILE``; the file's content is stripped.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


class EnvironmentProblem(Exception):
    """A variable is missing or cannot be understood."""


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One variable: its name, how to read it, what it means; ``shown`` is the default as documentation puts it."""

    name: str
    read: Callable[[str], T]
    shown: str
    meaning: str


KEYS: dict[str, Key[object]] = {}


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError("allowed: true, false, 1, 0, yes, no, on, off")


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"must lie between {low} and {high}")
        return value

    return read


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip() in allowed:
            return text.strip()
        raise ValueError(f"allowed: {', '.join(allowed)}")

    return read


def _path(text: str) -> Path:
    return Path(text).expanduser().resolve()


def _key(name: str, read: Callable[[str], T], shown: str, meaning: str) -> Key[T]:
    key = Key(name, read, shown, meaning)
    KEYS[name] = key  # type: ignore[assignment]  # a registry of keys of every type
    return key


STATE_DIR = _key("CAISSON_STATE_DIR", _path, ".caisson in the checkout", "Everything the embedded product keeps.")
PORT = _key("CAISSON_PORT", _integer(1, 65535), "8765", "Port of the web console on 127.0.0.1.")
SECRET_KEY = _key("CAISSON_SECRET_KEY", str, "generated once into the state directory", "Signs sessions and forms.")
TOKEN_PEPPER = _key(
    "CAISSON_TOKEN_PEPPER", str, "generated once into the state directory", "Ring `id:hex,id:hex`; the first one signs."
)
DATABASE_URL = _key("DATABASE_URL", str, "SQLite in the state directory", "`postgres://…` or `sqlite:///…`.")
REDIS_URL = _key("REDIS_URL", str, "a Unix socket in the state directory", "Broker, cache and channel layer.")
DEBUG = _key("CAISSON_DEBUG", _boolean, "false", "Django's debug pages; never on a machine that others reach.")
HOSTS = _key("CAISSON_HOSTS", _words, "localhost,127.0.0.1,[::1]", "Host names that the console answers to.")
ORIGINS = _key(
    "CAISSON_ORIGINS",
    _words,
    "http://localhost:PORT,http://127.0.0.1:PORT",
    "Full origins that may open sockets and forms.",
)
PROVIDERS = _key("CAISSON_PROVIDERS", _words, "local", "Installed sandbox providers; the policy revision chooses one.")
LOCAL_ISOLATION = _key(
    "CAISSON_LOCAL_ISOLATION",
    _one_of("auto", "bubblewrap", "none"),
    "auto",
    "What stands between a local sandbox and you.",
)
SANDBOX_IMAGE = _key("CAISSON_SANDBOX_IMAGE", str, "what `up` built", "Digest of the sandbox image for new tasks.")
WORKER_THREADS = _key("CAISSON_WORKER_THREADS", _integer(1, 64), "8", "Threads of the embedded worker.")
LOG_LEVEL = _key(
    "CAISSON_LOG_LEVEL", _one_of("debug", "info", "warning", "error"), "info", "Least level that is logged."
)
LOG_FORMAT = _key(
    "CAISSON_LOG_FORMAT", _one_of("auto", "json", "console"), "auto", "auto: JSON unless a terminal reads it."
)
PRIVATE_REMOTES = _key(
    "CAISSON_PRIVATE_REMOTES", _words, "none", "Hosts on private addresses that repositories may be cloned from."
)


class Environment:
    """Read keys from a mapping (``os.environ`` in production), with ``X_FILE`` as the other spelling of ``X``."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def get(self, key: Key[T], default: T) -> T:
        """Give the key's value, or ``default`` when it is not set or empty. Raises EnvironmentProblem."""
        text = self._text(key.name)
        if text is None:
            return default
        try:
            return key.read(text)
        except ValueError as error:
            raise EnvironmentProblem(f"{key.name}={text!r}: {error}. {key.meaning}") from None

    def _text(self, name: str) -> str | None:
        path = self._values.get(f"{name}_FILE")
        if path and self._values.get(name):
            raise EnvironmentProblem(f"{name} and {name}_FILE are both set; keep one of them.")
        if not path:
            return self._values.get(name) or None
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise EnvironmentProblem(f"{name}_FILE={path!r} cannot be read: {error.strerror}.") from None
