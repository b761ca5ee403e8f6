"""Event name and facts through structlog; JSON unless a terminal reads it."""

import logging
import re
import sys
from typing import Any

import structlog

_KEY = re.compile(r"\b(cs[a-z]_(?:[0-9A-Za-z]{12}_|\w+\.\w+\.))[0-9A-Za-z]{8,}")  # its last part is the secret


def _without_keys(_logger: Any, _method: str, line: Any) -> str:
    """Leave the secret out of every key of ours: a refused request is logged with its address, sign-in links too."""
    return _KEY.sub(r"\1•••", line)


def configure(*, level: str, style: str, terminal: bool) -> None:
    """Route structlog and the standard library's loggers to standard error. Calling it again replaces the set-up."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    pretty = style == "console" or (style == "auto" and terminal)
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)  # no locals
        if pretty
        else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([] if pretty else [structlog.processors.format_exc_info]),
                renderer,
                _without_keys,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("daphne.http_protocol", "asyncio", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
