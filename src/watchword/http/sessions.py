"""The session address: sign in with a token (in local mode, as an actor), ask who is signed in, sign out.

The token comes in the body and goes no further: what the browser keeps is the id of a session, in a cookie.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson

from watchword import __version__
from watchword.domain.actors import Caller
from watchword.domain.errors import UNAUTHENTICATED, UNAUTHORIZED, Fault, Reason, invalid
from watchword.domain.tokens import MAX_AUTHORIZATION
from watchword.http.callers import Callers
from watchword.http.faults import JSON, NO_STORE, redact
from watchword.http.graphql.endpoint import check_media_type, read_json
from watchword.http.own_pages import OwnPages, forgotten, kept
from watchword.http.requests import Request, Response
from watchword.service.sessions import Sessions, Visit

SESSION = "/session"
MAX_SIGN_IN = 64 * 1024
_FORM = 'an object with one field: {"token": "..."}, or in local mode {"actor": "urn:..."}'

T = TypeVar("T", Caller, Visit)
Known = Callable[[Request, Awaitable[T]], Awaitable[T]]
"""Notes of a request who it turned out to be, or that it was refused."""


class SessionDoor:
    def __init__(self, pages: OwnPages, callers: Callers, sessions: Sessions) -> None:
        self._pages = pages
        self._callers = callers
        self._sessions = sessions

    async def sign_in(self, request: Request, known: Known[Caller]) -> Response:
        secure = self._pages.check(request)
        check_media_type(request)
        field, value = _asked(read_json(await request.body(MAX_SIGN_IN), _FORM))
        if field == "token":
            caller = await known(request, self._callers.holder(value.encode(), request))
        else:
            caller = await known(request, self._callers.chosen(value, request))
        held, session = await self._sessions.sign_in(caller)
        await self._end(request)  # its place in the browser is taken, where nothing could end it any more
        content = {"actorUrn": session.actor, "tokenId": session.token_id, "expiresAt": session.ends_at}
        return Response(200, [JSON, NO_STORE, kept(held, secure=secure)], orjson.dumps(content))

    async def tell(self, request: Request, known: Known[Visit]) -> Response:
        secure = self._pages.check(request)
        content: dict[str, Any] = {
            "signedIn": False,
            "actorUrn": None,
            "tokenId": None,
            "expiresAt": None,
            "localMode": self._callers.is_local(request),
            "version": __version__,
        }
        headers = [JSON, NO_STORE]
        held = self._pages.carried(request)
        if held is not None:
            try:
                visit = await known(request, self._callers.visit(held, request))
            except Fault as fault:
                if fault.kind not in {UNAUTHENTICATED, UNAUTHORIZED}:
                    raise
                content |= {"reason": fault.reason.word, "message": redact(fault.message)}
                headers.append(forgotten(secure=secure))
            else:
                told = {"actorUrn": visit.actor, "tokenId": visit.bearer_id, "expiresAt": visit.ends_at}
                content |= {"signedIn": True, **told}
        return Response(200, headers, orjson.dumps(content))

    async def sign_out(self, request: Request) -> Response:
        secure = self._pages.check(request)
        await self._end(request)
        return Response(204, [NO_STORE, forgotten(secure=secure)])

    async def _end(self, request: Request) -> None:
        held = self._pages.carried(request)
        if held is not None:
            await self._sessions.sign_out(held, request.client, request.id)


def _asked(content: Any) -> tuple[str, str]:
    """Token or actor, and which."""
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= {"token", "actor"}:
        raise Fault(Reason.INVALID_JSON, f"The body must be {_FORM}.")
    ((field, value),) = content.items()
    value = value.strip() if isinstance(value, str) else ""
    if not value or len(value) > MAX_AUTHORIZATION:
        raise invalid(field, f"{field} must be a text of 1 to {MAX_AUTHORIZATION:,} characters.")
    return field, value
