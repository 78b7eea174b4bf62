"""ASGI middleware: lets a request through only with a valid token, and gives the application the token's identity.

    app.add_middleware(VerifyTokens, server="https://tokens.example.org", require=["orders:read"])

Each request is verified at `/auth`, so that a revoked token is rejected from the next request on. If Watchword cannot
be reached, or another program answers, the application answers 503.
"""

import asyncio
import json
import logging
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import httpx

from watchword.basics.errors import (
    AUTHORIZATION_TOO_LONG,
    MAX_AUTHORIZATION,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Kind,
    Reason,
)
from watchword.basics.names import DEFAULT_URL
from watchword.client.asynchronous.transport import open_http
from watchword.client.http_clients import ServerConnection
from watchword.client.records import VerifiedToken, read_identity
from watchword.client.requests import as_list

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

MAX_CACHED = 10_000
LONGEST_CACHE = 60.0
MAX_BODY = 16 * 1024
POLICY_VIOLATION = 1008
_CHALLENGE = b'Bearer realm="watchword"'
# Headers that a client must not set. Some frameworks take an underscore or a dot for a hyphen.
_RESERVED = frozenset({b"x-auth-urn", b"x-auth-token-id", b"x-auth-scopes", b"x-service-actor", b"x-datahub-actor"})
_NAME = re.compile(r"[a-z0-9-]{1,60}")
_log = logging.getLogger("watchword.client")


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The identity of a valid token, or the response to send."""

    identity: VerifiedToken | None
    status: int = 200
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""


class VerifyTokens:
    """`require` names scopes that a token must have, `privileges` those of its actor. `resource` is the name of the
    resource that the application is: the token's audience must contain its id. Without it, a token that is limited to
    an audience must name Watchword's issuer. `audience` has more words that the token's audience must contain. `public`
    has the exact paths that need no token. `remember` caches a positive answer for that many seconds, in which a
    revoked token is still accepted; the default, 0, caches nothing.

    The application finds a `VerifiedToken` in `request.state.watchword`.
    """

    def __init__(
        self,
        app: App,
        *,
        server: str = DEFAULT_URL,
        require: Iterable[str] = (),
        privileges: Iterable[str] = (),
        audience: Iterable[str] = (),
        resource: str | None = None,
        public: Iterable[str] = (),
        remember: float = 0.0,
        timeout: float = 5.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        if not 0 <= remember <= LONGEST_CACHE:
            raise ValueError(f"remember must be 0 to {LONGEST_CACHE:.0f} seconds.")
        if not timeout > 0:
            raise ValueError("timeout must be more than 0 seconds.")
        if resource is not None and not _NAME.fullmatch(resource):
            raise ValueError("resource must have 1 to 60 lower-case letters, digits or hyphens.")
        self._app = app
        self._connection = ServerConnection(server, None, None, 0)
        self._timeout = timeout
        self._verify = verify
        lists = {"scope": as_list("require", require), "privilege": as_list("privileges", privileges)}
        lists["audience"] = as_list("audience", audience)
        query = urlencode([(f"watchword.{kind}", word) for kind, words in lists.items() for word in words])
        path = "/auth" if resource is None else f"/resources/{resource}/auth"
        self._url = f"{self._connection.url}{path}{'?' if query else ''}{query}"
        self._public = frozenset(as_list("public", public))
        self._remember = remember
        self._verified: OrderedDict[bytes, tuple[float, VerifiedToken]] = OrderedDict()
        """Identities, and until when they count, by a digest of the token and the client's address."""
        self._pool: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._app(scope, receive, self._closing(send))
            case "http" | "websocket":
                await self._guard(scope, receive, send)
            case other:
                raise ValueError(f"VerifyTokens supports http, websocket and lifespan, not {other}.")

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if _normalized(name) not in _RESERVED]
        state = scope.setdefault("state", {})
        if scope["path"] not in self._public:
            verdict = await self._verify_request(scope)
            if verdict.identity is None:
                await _reject(verdict, scope, receive, send)
                return
            state["watchword"] = verdict.identity
        await self._app({**scope, "headers": headers, "state": state}, receive, send)

    async def _verify_request(self, scope: Scope) -> _Verdict:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            wanted = "must be given once" if given else "must bring a token: Bearer <token>"
            word = Reason.MISSING_CREDENTIAL.word
            return _no(UNAUTHENTICATED, word, f"The Authorization header {wanted}.", (b"www-authenticate", _CHALLENGE))
        value = given[0].strip(b" \t")  # HTTP/1 servers remove the blanks, HTTP/2 servers do not
        if len(value) > MAX_AUTHORIZATION:
            return _no(Reason.INVALID_HEADER.kind, Reason.INVALID_HEADER.word, AUTHORIZATION_TOO_LONG)
        host = (scope.get("client") or ("",))[0]
        key = sha256(host.encode() + b"\0" + value).digest()
        until, known = self._verified.get(key, (0.0, None))
        if known is not None and time.monotonic() < until:
            return _Verdict(known)
        try:
            verdict = await self._ask(value, host)
        except httpx.LocalProtocolError:  # its text may hold the header, and so the token
            return self._unavailable("the request could not be written")
        except (httpx.HTTPError, TimeoutError) as error:
            return self._unavailable(f"{type(error).__name__}: {error}".rstrip(": "))
        if verdict.identity is not None and self._remember:
            self._verified[key] = time.monotonic() + self._remember, verdict.identity
            self._verified.move_to_end(key)
            while len(self._verified) > MAX_CACHED:
                self._verified.popitem(last=False)
        return verdict

    async def _ask(self, authorization: bytes, host: str) -> _Verdict:
        headers = [(b"authorization", authorization), (b"accept", b"application/json")]
        headers += [(b"accept-encoding", b"identity"), *([(b"x-forwarded-for", host.encode())] if host else [])]
        async with asyncio.timeout(self._timeout):
            try:
                return await self._ask_once(headers)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The server may have closed a kept-alive connection: that must not reject a request.
                return await self._ask_once(headers)

    async def _ask_once(self, headers: list[Header]) -> _Verdict:
        async with self._http().stream("GET", self._url, headers=headers, follow_redirects=False) as response:
            if response.status_code in {200, 204}:
                try:
                    return _Verdict(read_identity(response.headers))
                except KeyError:
                    return self._unavailable("another program answered")
            if response.status_code not in {400, 401, 403}:
                return self._unavailable(f"it answered {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY:
                    return self._unavailable("its answer is too long")
            named = [name for name in ("content-type", "www-authenticate") if name in response.headers]
            sent = [(name.encode(), response.headers[name].encode("latin-1")) for name in named]
            return _Verdict(None, response.status_code, sent, bytes(body))

    def _unavailable(self, cause: str) -> _Verdict:
        """The reason goes to the log only; the client learns that it may retry."""
        _log.warning("cannot verify tokens at %s: %s", self._connection, cause)
        sentence = "Tokens cannot be verified at the moment. Retry soon."
        return _no(UNAVAILABLE, "watchword_unavailable", sentence, (b"retry-after", b"1"))

    def _http(self) -> httpx.AsyncClient:
        """The connections of this event loop, kept between requests."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            opened = open_http(self._connection, self._timeout, self._verify)
            self._pool = loop, opened
        return self._pool[1]

    def _closing(self, send: Send) -> Send:
        async def send_and_close(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown.") and self._pool is not None:
                (_, pool), self._pool = self._pool, None
                await pool.aclose()
            await send(message)

        return send_and_close


def _normalized(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-").replace(b".", b"-")


def _no(kind: Kind, reason: str, message: str, *headers: Header) -> _Verdict:
    """A response in the form of Watchword's errors."""
    content = {"code": kind.code, "type": kind.type, "reason": reason, "message": message}
    body = json.dumps({"error": content}).encode()
    return _Verdict(None, kind.code, [(b"content-type", b"application/json; charset=utf-8"), *headers], body)


async def _reject(verdict: _Verdict, scope: Scope, receive: Receive, send: Send) -> None:
    """A WebSocket is rejected before it opens. A server that cannot send a response of its application answers 403."""
    prefix = "http"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        prefix = "websocket.http"
    headers = [*verdict.headers, (b"content-length", b"%d" % len(verdict.body)), (b"cache-control", b"no-store")]
    await send({"type": f"{prefix}.response.start", "status": verdict.status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": verdict.body})
