"""Moments and spans as people type them."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

from watchword.domain.errors import Fault
from watchword.domain.lifetimes import parse_iso

_SPAN = re.compile(r"(\d{1,9})([wdhms])", re.ASCII)
_MILLIS = {"w": 7 * 86_400_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


class Age(click.ParamType[int]):
    """A span such as 30d, in milliseconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        short = _SPAN.fullmatch(value)
        if short is not None:
            return int(short[1]) * _MILLIS[short[2]]
        try:
            return parse_iso(value)
        except Fault:
            self.fail("must be a number of w, d, h, m or s (30d, 12h) or a span such as P30D.", param, ctx)


class Moment(click.ParamType[int]):
    """A date, a time or a span, as milliseconds since 1970."""

    name = "moment"

    def __init__(self, *, ago: bool) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        now = time.time_ns() // 1_000_000
        try:
            if value.startswith("P"):
                return now + parse_iso(value) * (-1 if self._ago else 1)
            moment = datetime.fromisoformat(value)
        except (Fault, ValueError):
            self.fail("must be a date (2026-12-31), a time (2026-12-31T18:00Z, UTC) or a span such as P7D.", param, ctx)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
