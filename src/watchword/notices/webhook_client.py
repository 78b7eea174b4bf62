"""Sends webhooks: one POST, bounded in time and size, to an address that was checked."""

import time
from collections.abc import Collection

from watchword import __version__
from watchword.basics.errors import Fault, invalid
from watchword.basics.networks import Network
from watchword.basics.times import Clock
from watchword.notices.webhook_rules import MAX_ANSWER, Attempt
from watchword.outbound import rules as outbound_rules
from watchword.outbound.client import OutboundProcess
from watchword.outbound.rules import AddressRule, AnswerBounds, OutboundError, OutboundProblem, parse_url

MAX_ERROR = 300
BOUNDS = AnswerBounds(seconds=10.0, received=64 * 1024, pieces=500, kept=MAX_ANSWER)
_HEADERS = {"content-type": "application/json", "user-agent": f"Watchword/{__version__}"}


class WebhookClient:
    def __init__(
        self, outbound: OutboundProcess, networks: Collection[Network], clock: Clock, *, allow_http: bool
    ) -> None:
        self._outbound = outbound
        self._rule = AddressRule(tuple(networks), allow_http)
        self._clock = clock

    async def check(self, url: str) -> None:
        """Raise the error for the caller unless messages may be sent there. A name that cannot be resolved passes: its
        addresses are checked with each attempt.
        """
        try:
            await self._outbound.check(parse_url(url), self._rule, BOUNDS.seconds)
        except OutboundError as error:
            if error.problem is OutboundProblem.NOT_ALLOWED:
                raise invalid("url", f"url is not allowed: {error}") from None

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> Attempt:
        at, began = self._clock(), time.monotonic()
        status, error, answer = None, None, None
        try:
            request = outbound_rules.OutboundRequest(
                "POST", parse_url(url), BOUNDS, {**_HEADERS, **headers}, body, self._rule
            )
            answered = await self._outbound.send(request)
            status, answer = answered.status, answered.body.decode(errors="replace").replace("\x00", "")
        except (OutboundError, Fault) as problem:
            error = str(problem)[:MAX_ERROR]
        return Attempt(at, int((time.monotonic() - began) * 1_000), status, error, answer)
