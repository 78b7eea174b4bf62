"""Forward authentication for gateways at `/auth`: what a gateway requires of a live token.

The path says for whom the token must be: at `/auth` for this service, which a token that is not limited to an audience
always is; at `/resources/<name>/auth` for the resource, which the token's audience must contain.

Requirements are query parameters, and all must hold: `watchword.privilege`, `watchword.scope`, `watchword.audience`.
Other parameters are ignored: some gateways append those of the application. So a client may send requirements too, and
no parameter may ever replace what the path or another parameter requires. `watchword.status=200` asks for 200 instead
of 204, which Envoy does not accept.

A required privilege is one of this service, so its token must be for this service.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from structlog.typing import FilteringBoundLogger

from watchword.authority.callers import Bearer, Caller, EffectiveRights, denied_with
from watchword.authority.limits import MAX_AUDIENCE, MAX_TEXT, Limits
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import DENIALS, RejectionLog
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.http.errors import NO_STORE, fault_response
from watchword.http.requests import Header, Request, Response

PREFIX = b"watchword."
MAX_REQUIREMENTS = 200
"""More than a token can hold of all kinds together."""
MAX_QUERY = 16_384
"""Characters. Beyond it the answer is 403: gateways treat most other statuses as failures of the service."""
NO_SCOPES = ("x-auth-scopes", "")

# A parameter that may begin with the prefix, in either case and percent-encoded. The regex skips the others quickly.
_PARAMETER = re.compile(rb"(?<![^&])((?:[wW]|%[57]7)[^&=]{9,})=?([^&]*)")
_ENCODED_PREFIX = 3 * len(PREFIX)
# A parameter that its author may have meant as one of ours.
_LOOKALIKE = re.compile(rb"(?<![^&])((?:watchword[-_])?(?:scopes?|privileges?|audience))(?==)", re.IGNORECASE)
WARN_SECONDS = 600.0


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


class IgnoredParameters:
    """Counts parameters that look like ours, without the prefix, and warns of each kind now and then. The gateway may
    mean them as requirements, which they are not; or they are those of the application.
    """

    def __init__(self, logger: FilteringBoundLogger, count: Callable[[str], None]) -> None:
        self._logger = logger
        self._count = count
        self._warned_at: dict[str, float] = {}

    def note(self, query: str) -> None:
        for name in {found.decode().lower() for found in _LOOKALIKE.findall(query.encode())}:
            self._count(name)
            now = time.monotonic()
            if now - self._warned_at.get(name, -WARN_SECONDS) >= WARN_SECONDS:
                self._warned_at[name] = now
                self._logger.warning(
                    "ignored parameter at /auth",
                    parameter=name,
                    advice="It requires nothing. Requirements have the prefix: watchword.scope, .privilege, .audience. "
                    "If the gateway sends the application's query string, let it send none.",
                )


@dataclass(frozen=True, slots=True)
class ForwardAuth:
    _require_audience: Callable[[Limits], None]
    """Raises unless a token with these limits is for this service."""
    _authority: Authority
    _rejections: RejectionLog
    _count_error: Callable[[Reason], None]
    _ignored: IgnoredParameters

    async def answer(self, request: Request, bearer: Bearer, name: str | None) -> Response:
        """For a live token that is limited, or of which the gateway requires something. `name` is that of the resource
        in the path.
        """
        rights = self._authority.rights_now(bearer) or await self._authority.rights(bearer)
        headers = identity_headers(bearer.actor, bearer.token_id, rights.text)
        try:
            self._check_path(bearer.limits, name)
            required = parse_requirements(request.scope.query_string)
            self._ignored.note(request.scope.query_string)
            self._check(bearer.limits, rights, required)
        except Fault as fault:
            if fault.reason in DENIALS and fault.details:
                self._rejections.record_denial(Caller.with_bearer(bearer, request.client, request.id), "/auth", fault)
            self._count_error(fault.reason)
            response = fault_response(fault, graphql=False)
            response.headers.extend(headers[1:])
            return response
        return Response(200 if STATUS_200 in required else 204, headers)

    def _check_path(self, limits: Limits, name: str | None) -> None:
        """Raise unless the token is for the resource of the path, or without one for this service."""
        if name is None:
            self._require_audience(limits)
            return
        resource = self._authority.resource(name)
        if resource is None:
            raise Fault(
                Reason.UNKNOWN_RESOURCE,
                f"No policy file declares the resource {name[:MAX_AUDIENCE]}, which the gateway's address names.",
            )
        if not limits.holds_audience(resource):
            raise Fault(Reason.WRONG_RESOURCE, f"The token's audience does not contain {resource}.")

    def _check(self, limits: Limits, rights: EffectiveRights, required: list[Requirement]) -> None:
        if len(required) > MAX_REQUIREMENTS:
            raise Fault(Reason.MISSING_SCOPE, f"The gateway sends more than {MAX_REQUIREMENTS} requirements.")
        for kind, value in required:
            if (kind, value) == STATUS_200:
                continue
            match kind:
                case "privilege":
                    self._require_audience(limits)
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
