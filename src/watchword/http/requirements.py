"""Requirements: what a gateway asks of a token besides that it lives.

They come as query parameters of `/auth`, each of which must hold: `watchword.privilege`, `watchword.scope`,
`watchword.audience`. All other parameters are somebody else's: some gateways append the application's own.
`watchword.status=200` asks how to say yes: Envoy takes no 204 for one.

A token that is limited to audiences is judged as by our own API. Where `watchword.audience` is required, the gateway
says who it is, and the token must name that; otherwise the token must name this service. A privilege is one of this
service, so it always needs a token that names this service.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import Privilege, denied
from watchword.http.callers import Callers
from watchword.http.requests import Request
from watchword.service.authority import Authority
from watchword.service.refusals import Refusals

PREFIX = b"watchword."
MAX_REQUIRED = 200
"""More than a token can hold of all kinds together."""
MAX_QUERY = 16_384
"""Characters: it has the application's own parameters too. Gateways take 403 for a no, and most else for a fault."""


def _ways(sign: int) -> bytes:
    """To write it: as it is, in either case, or as an escape."""
    both = sorted({*b"%c" % sign, *(b"%c" % sign).upper()})
    return b"|".join([*(re.escape(b"%c" % one) for one in both), *(b"%%%02x|%%%02X" % (one, one) for one in both)])


# A parameter whose name begins with the prefix. A set of single signs comes first: that passes over quickly what is
# not ours.
_OURS = re.compile(
    rb"[wW%](?<![^&].)(?:(?<=[wW])|[57]7)" + b"".join(b"(?:%s)" % _ways(sign) for sign in PREFIX[1:]) + rb"[^&]*",
    re.DOTALL,
)


class Required(NamedTuple):
    kind: str
    word: str


WANTS_200 = Required("status", "200")
"""Asks nothing of the token. To gateways that do not ask for it any 2xx is a yes, so it may come from anybody."""


def required(query: str) -> list[Required]:
    """What must hold. A parameter of ours that is not known is one that nobody holds. The query is gone through for
    ours alone: it may be long, and is somebody else's.
    """
    if len(query) > MAX_QUERY:
        raise Fault(Reason.MISSING_SCOPE, f"The query must have at most {MAX_QUERY:,} characters to be looked through.")
    found: list[Required] = []
    for match in _OURS.finditer(query.encode()):
        name, _, value = match[0].partition(b"=")
        kind = unquote_to_bytes(name).lower()[len(PREFIX) :].decode("utf-8", "replace")
        found.append(Required(kind, unquote_to_bytes(value.replace(b"+", b" ")).decode("utf-8", "replace")))
        if len(found) > MAX_REQUIRED:
            break
    return found


class Requirements:
    def __init__(self, callers: Callers, authority: Authority, refusals: Refusals) -> None:
        self._callers = callers
        self._authority = authority
        self._refusals = refusals

    async def check(self, bearer: Bearer, request: Request, wanted: list[Required]) -> None:
        """Raise what its holder is told unless all of it is held and the token's audience allows it."""
        if len(wanted) > MAX_REQUIRED:
            raise Fault(
                Reason.MISSING_SCOPE,
                f"The gateway requires more than {MAX_REQUIRED} things; at most so many are checked.",
            )
        limits = bearer.limits
        if all(kind != "audience" for kind, _ in wanted):
            self._callers.need_audience(limits)
        for kind, word in wanted:
            if (kind, word) == WANTS_200:
                continue
            match kind:
                case "privilege":
                    await self._privilege(self._callers.caller(bearer, request), word)
                case "scope":
                    if not limits.holds_scope(word):
                        raise _not_held(Reason.MISSING_SCOPE, "scope", word)
                case "audience":
                    if not limits.holds_audience(word):
                        raise _not_held(Reason.WRONG_AUDIENCE, "audience", word)
                case _:
                    raise Fault(
                        Reason.MISSING_SCOPE,
                        f"The gateway requires watchword.{kind[:200]}, which is unknown. "
                        "Known are watchword.privilege, .scope, .audience and .status=200.",
                    )

    async def _privilege(self, caller: Caller, word: str) -> None:
        if word not in Privilege.__members__:
            raise Fault(Reason.MISSING_PRIVILEGE, "There is no such privilege as the gateway requires.", privilege=word)
        privilege = Privilege[word]
        if not (await self._authority.grant(caller)).may(privilege):
            fault = denied(privilege)
            self._refusals.denied(caller, "/auth", fault)
            raise fault


def _not_held(reason: Reason, what: str, word: str) -> Fault:
    return Fault(reason, f"The gateway requires the {what} {word[:200] or '(empty)'}, which the token does not have.")
