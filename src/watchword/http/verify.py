"""Forward authentication for gateways at `/auth`: what a gateway requires of a live token.

Requirements are query parameters, and all must hold: `watchword.privilege`, `watchword.scope`, `watchword.audience`.
Other parameters are ignored: some gateways append those of the application. `watchword.status=200` asks for 200 instead
of 204, which Envoy does not accept.

With `watchword.audience` the gateway names itself, and a token limited to audiences must name that audience. Without it
the token must name this service. A required privilege is one of this service, so its token must name this service.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from watchword.domain.actors import Bearer, Caller, EffectiveRights, denied_with
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import Privilege
from watchword.domain.token_limits import MAX_AUDIENCE, MAX_TEXT, Limits
from watchword.http.authentication import Authenticator
from watchword.http.errors import NO_STORE, fault_response
from watchword.http.requests import Header, Request, Response
from watchword.service.audit import DENIALS, RejectionLog
from watchword.service.authority import Authority

PREFIX = b"watchword."
MAX_REQUIREMENTS = 200
"""More than a token can hold of all kinds together."""
MAX_QUERY = 16_384
"""Characters. Beyond it the answer is 403: gateways treat most other statuses as failures of the service."""
NO_SCOPES = ("x-auth-scopes", "")


# A parameter that may begin with the prefix, in either case and percent-encoded. The regex skips the others quickly.
_PARAMETER = re.compile(rb"(?<![^&])((?:[wW]|%[57]7)[^&=]{9,})=?([^&]*)")
_ENCODED_PREFIX = 3 * len(PREFIX)


class Requirement(NamedTuple):
    kind: str
    value: str


STATUS_200 = Requirement("status", "200")
"""Requires nothing of the token. Other gateways accept any 2xx, so any client may send it."""


def parse_requirements(query: str) -> list[Requirement]:
    """Scans the query for our parameters only, because the query may be long. Unknown ones are kept: no token meets
    them.
    """
    if len(query) > MAX_QUERY:
        raise Fault(Reason.MISSING_SCOPE, f"The query must have at most {MAX_QUERY:,} characters to be checked.")
    required: list[Requirement] = []
    for match in _PARAMETER.finditer(query.encode()):
        if unquote_to_bytes(match[1][:_ENCODED_PREFIX]).lower().startswith(PREFIX):
            kind = unquote_to_bytes(match[1]).lower()[len(PREFIX) :]
            value = unquote_to_bytes(match[2].replace(b"+", b" "))
            required.append(Requirement(kind.decode("utf-8", "replace"), value.decode("utf-8", "replace")))
        if len(required) > MAX_REQUIREMENTS:
            break
    return required


@dataclass(frozen=True, slots=True)
class ForwardAuth:
    _authenticator: Authenticator
    _authority: Authority
    _rejections: RejectionLog
    _count_error: Callable[[Reason], None]

    async def answer(self, request: Request, bearer: Bearer) -> Response:
        """For a live token that is limited, or of which the gateway requires something."""
        rights = self._authority.rights_now(bearer) or await self._authority.rights(bearer)
        headers = identity_headers(bearer.actor, bearer.token_id, rights.text)
        try:
            required = parse_requirements(request.scope.query_string)
            self._check(bearer.limits, rights, required)
        except Fault as fault:
            if fault.reason in DENIALS and fault.details:
                self._rejections.record_denial(Caller.with_bearer(bearer, request.client, request.id), "/auth", fault)
            self._count_error(fault.reason)
            response = fault_response(fault, graphql=False)
            response.headers.extend(headers[1:])
            return response
        return Response(200 if STATUS_200 in required else 204, headers)

    def _check(self, limits: Limits, rights: EffectiveRights, required: list[Requirement]) -> None:
        """Raise unless the token's audience allows its use and every requirement holds."""
        if len(required) > MAX_REQUIREMENTS:
            raise Fault(Reason.MISSING_SCOPE, f"The gateway sends more than {MAX_REQUIREMENTS} requirements.")
        if all(kind != "audience" for kind, _ in required):
            self._authenticator.require_audience(limits)
        for kind, value in required:
            if (kind, value) == STATUS_200:
                continue
            match kind:
                case "privilege":
                    self._authenticator.require_audience(limits)
                    _check_privilege(limits, rights, value)
                case "scope":
                    if not rights.has_scope(value):
                        raise _not_met(Reason.MISSING_SCOPE, "scope", value)
                case "audience":
                    if not limits.holds_audience(value):
                        raise _not_met(Reason.WRONG_AUDIENCE, "audience", value)
                case _:
                    raise Fault(
                        Reason.MISSING_SCOPE,
                        f"The gateway requires watchword.{kind[:200]}, which is unknown. "
                        "Known are watchword.privilege, .scope, .audience and .status=200.",
                    )


def identity_headers(urn: str, token_id: str, scopes: str = "") -> list[Header]:
    """All three in every response: some gateways pass on the client's header where the response has none. Scopes beyond
    MAX_TEXT are left out: gateways reject long headers.
    """
    if len(scopes) > MAX_TEXT:
        scopes = scopes[: MAX_TEXT + 1].rpartition(" ")[0]
    return [
        NO_STORE,
        ("x-auth-urn", urn),
        ("x-auth-token-id", token_id),
        ("x-auth-scopes", scopes) if scopes else NO_SCOPES,
    ]


def _check_privilege(limits: Limits, rights: EffectiveRights, name: str) -> None:
    if name not in Privilege.__members__:
        message = "The gateway requires an unknown privilege."
        raise Fault(Reason.MISSING_PRIVILEGE, message, privilege=name[:MAX_AUDIENCE])
    if Privilege[name] not in rights.privileges:
        raise denied_with(limits, Privilege[name])


def _not_met(reason: Reason, what: str, value: str) -> Fault:
    named = value[:MAX_AUDIENCE]
    message = f"The gateway requires the {what} {named or '(empty)'}, which the token does not have."
    details: dict[str, Any] = {what: named}
    return Fault(reason, message, **details)
