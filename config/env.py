"""Read the environment: the only place that does, strictly; every key is remembered for the reference page.

A value that cannot be understood is an error that names the key, what it holds and what is allowed; never guessed.
A key ``X`` may be given as a file through ``X_FILE``; the file's content is stripped.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})

ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
PEPPER_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
PEPPER = re.compile(r"(?:[0-9a-fA-F]{2}){32,128}")


class EnvironmentProblem(Exception):
    """A variable is missing or cannot be understood."""


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One variable: its name, how to read it, what it means; ``shown`` is the default as documentation puts it.

    What a ``secret`` one holds is never repeated.
    """

    name: str
    read: Callable[[str], T]
    shown: str
    meaning: str
    secret: bool = False


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


def _some_words(text: str) -> tuple[str, ...]:
    words = _words(text)
    if not words:
        raise ValueError("must name at least one")
    return words


def _origins(text: str) -> tuple[str, ...]:
    """Read whole origins. A wildcard would let every page in, so there is none."""
    origins = tuple(word.lower() for word in _some_words(text))
    strange = [origin for origin in origins if not ORIGIN.fullmatch(origin)]
    if strange:
        raise ValueError(f"{strange[0]!r} is no origin such as https://caisson.example.org or http://10.0.0.5:8765")
    return origins


def _ring(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``id:hex,id:hex`` into pairs."""
    pairs = tuple((name, pepper) for name, _, pepper in (word.partition(":") for word in _some_words(text)))
    if not all(PEPPER_ID.fullmatch(name) and PEPPER.fullmatch(pepper) for name, pepper in pairs):
        raise ValueError("each part must be id:hex with 32 to 128 bytes in hexadecimal")
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("each id may be given once")
    return pairs


def _url(*schemes: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().startswith(schemes):
            return text.strip()
        raise ValueError(f"must begin with {' or '.join(schemes)}")

    return read


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip() in allowed:
            return text.strip()
        raise ValueError(f"allowed: {', '.join(allowed)}")

    return read


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser().resolve()
    except RuntimeError as error:  # of a ~user that does not exist
        raise ValueError(str(error)) from None


def _key(name: str, read: Callable[[str], T], shown: str, meaning: str, *, secret: bool = False) -> Key[T]:
    key = Key(name, read, shown, meaning, secret)
    KEYS[name] = key  # type: ignore[assignment]  # a registry of keys of every type
    return key


STATE_DIR = _key("CAISSON_STATE_DIR", _path, ".caisson in the checkout", "Everything the embedded product keeps.")
PORT = _key("CAISSON_PORT", _integer(1, 65535), "8765", "Port of the web console on 127.0.0.1.")
SECRET_KEY = _key(
    "CAISSON_SECRET_KEY", str, "generated once into the state directory", "Signs sessions and forms.", secret=True
)
TOKEN_PEPPER = _key(
    "CAISSON_TOKEN_PEPPER",
    _ring,
    "generated once into the state directory",
    "Ring `id:hex,id:hex`; the first one signs.",
    secret=True,
)
DATABASE_URL = _key(
    "DATABASE_URL",
    _url("postgres://", "postgresql://", "sqlite:///"),
    "SQLite in the state directory",
    "`postgres://…`, `postgresql://…` or `sqlite:///…`.",
    secret=True,
)
REDIS_URL = _key(
    "REDIS_URL",
    _url("unix://", "redis://", "rediss://"),
    "a Unix socket in the state directory",
    "Broker, cache and channel layer: `unix://…`, `redis://…` or `rediss://…`.",
    secret=True,
)
DEBUG = _key("CAISSON_DEBUG", _boolean, "false", "Django's debug pages; never on a machine that others reach.")
HOSTS = _key("CAISSON_HOSTS", _some_words, "localhost,127.0.0.1,[::1]", "Host names that the console answers to.")
ORIGINS = _key(
    "CAISSON_ORIGINS",
    _origins,
    "http://localhost:PORT,http://127.0.0.1:PORT",
    "Full origins that may open sockets and forms.",
)
PROVIDERS = _key(
    "CAISSON_PROVIDERS", _some_words, "local", "Installed sandbox providers; the policy revision chooses one."
)
LOCAL_ISOLATION = _key(
    "CAISSON_LOCAL_ISOLATION",
    _one_of("auto", "bubblewrap", "none"),
    "auto",
    "What stands between a local sandbox and you: bubblewrap, none, or auto (bubblewrap where it works).",
)
SANDBOX_IMAGE = _key("CAISSON_SANDBOX_IMAGE", str, "what `up` built", "Digest of the sandbox image for new tasks.")
WORKER_THREADS = _key("CAISSON_WORKER_THREADS", _integer(1, 64), "8", "Threads of the embedded worker, 1 to 64.")
LOG_LEVEL = _key(
    "CAISSON_LOG_LEVEL",
    _one_of("debug", "info", "warning", "error"),
    "info",
    "Least level that is logged: debug, info, warning or error.",
)
LOG_FORMAT = _key(
    "CAISSON_LOG_FORMAT",
    _one_of("auto", "json", "console"),
    "auto",
    "json, console, or auto: JSON unless a terminal reads it.",
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
            held = "" if key.secret else f"={text!r}"
            raise EnvironmentProblem(f"{key.name}{held}: {error}. {key.meaning}") from None

    def _text(self, name: str) -> str | None:
        path = self._values.get(f"{name}_FILE")
        if path and self._values.get(name):
            raise EnvironmentProblem(f"{name} and {name}_FILE are both set; keep one of them.")
        if not path:
            return self._values.get(name) or None
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise EnvironmentProblem(f"{name}_FILE={path!r} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise EnvironmentProblem(f"{name}_FILE={path!r} holds no UTF-8 text.") from None
        if not text:
            raise EnvironmentProblem(f"{name}_FILE={path!r} is empty.")
        return text
