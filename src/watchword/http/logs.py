"""Logs: JSON lines on standard error. Headers, query strings and bodies are never logged."""

import asyncio
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import BinaryIO

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from watchword.http.errors import printable, redact
from watchword.http.requests import Request

_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
FLUSH_SECONDS = 0.05
QUIET_ROUTES = frozenset({"/auth", "/health", "/health/live", "/health/ready", "/metrics"})


class _LogStream:
    """Ignores write errors: a full disk or a closed pipe must not fail a request."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: bytes) -> None:
        with suppress(OSError):
            self._out.write(line)
            self._out.flush()

    def msg(self, line: bytes) -> None:
        self.write(line + b"\n")

    debug = info = warning = error = msg


def make_logger(level: str) -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _LogStream(sys.stderr.buffer),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redacted,
            structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event)),
        ],
    )
    return logger


def _redacted(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Removes anything that looks like a token, as a last line of defence."""
    return {key: redact(value) if isinstance(value, str) else value for key, value in event.items()}


class AccessLog:
    """One line per request: all, none, or (default) all but successful /auth and probes.

    Lines look like those of the logger, but bypass structlog, whose processors cost more than many a request. They are
    written together every FLUSH_SECONDS.
    """

    def __init__(self, logger: FilteringBoundLogger, mode: str, out: BinaryIO = sys.stderr.buffer) -> None:
        self._mode = mode if logger.is_enabled_for(logging.INFO) else "off"
        self._out = _LogStream(out)
        self._lines: list[bytes] = []

    def wants(self, route: str, status: int) -> bool:
        if self._mode == "default":
            return status >= 400 or route not in QUIET_ROUTES
        return self._mode == "all"

    def write(self, request: Request, route: str, status: int, seconds: float) -> None:
        """`route` is the route label of the metrics."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        line = {
            "method": redact(request.scope.method[:20]),
            "path": route if request.path == route else redact(printable(request.path[:500])),
            "status": status,
            "ms": round(seconds * 1000, 2),
            "client": request.client,
            "request_id": redact(request.id),
            "actor": request.actor and redact(request.actor),
            "event": "request",
            "level": "info",
            "timestamp": datetime.now(UTC),
        }
        self._lines.append(orjson.dumps(line, option=_LINE))

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        self._out.write(b"".join(lines))


class JsonFormatter(logging.Formatter):
    """Formats granian's messages like ours."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat()
        message = redact(record.getMessage())
        return orjson.dumps({"event": message, "level": record.levelname.lower(), "timestamp": moment}).decode()
