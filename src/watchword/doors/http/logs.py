"""Logs: JSON lines on standard error. No header, no query string and no body is ever logged."""

import logging
import sys
from datetime import UTC, datetime

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from watchword.doors.http.faults import printable, redact

QUIET_ROUTES = frozenset({"/auth", "/health", "/health/live", "/health/ready", "/metrics"})


def make_logger(level: str) -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.BytesLogger(sys.stderr.buffer),
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
    """The last line of defence: whatever looks like a token does not get out."""
    return {key: redact(value) if isinstance(value, str) else value for key, value in event.items()}


class AccessLog:
    """One line a request: all of them, none, or (default) all but successful /auth and probes."""

    def __init__(self, logger: FilteringBoundLogger, mode: str) -> None:
        self._logger = logger
        self._mode = mode

    def wants(self, route: str, status: int) -> bool:
        if self._mode == "default":
            return status >= 400 or route not in QUIET_ROUTES
        return self._mode == "all"

    def write(
        self,
        *,
        method: str,
        path: str,
        status: int,
        seconds: float,
        client: str,
        request_id: str,
        actor: str | None,
    ) -> None:
        self._logger.info(
            "request",
            method=method[:20],
            path=printable(path[:500]),
            status=status,
            ms=round(seconds * 1000, 2),
            client=client,
            request_id=request_id,
            actor=actor,
        )


class JsonLines(logging.Formatter):
    """The server's own messages in the same form as ours."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat()
        message = redact(record.getMessage())
        return orjson.dumps({"event": message, "level": record.levelname.lower(), "timestamp": moment}).decode()
