"""Before an ASGI application: only who brings a live token gets through, and the application knows whose it is.

    app.add_middleware(VerifyTokens, server="https://tokens.example.org", require=["orders:read"])

Each request is asked about at `/auth`, so that a token that was revoked is dead at the next one. No answer is a no:
where Watchword cannot be asked, the application answers 503, and the same where what answers is not Watchword.
"""

import asyncio
import json
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import httpx

from watchword.client.connection import DEFAULT_URL, ServerConnection, usable_proxy
from watchword.client.records import Identity
from watchword.domain.errors import BAD_REQUEST, UNAUTHENTICATED, UNAVAILABLE, Kind, Reason
from watchword.domain.tokens import AUTHORIZATION_TOO_LONG, MAX_AUTHORIZATION

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

MOST_REMEMBERED = 10_000
LONGEST_MEMORY = 60.0
LONGEST_REFUSAL = 16 * 1024
TRIES = 2
"""A connection that was kept may have ended with the server at its other side: that is no reason to refuse anybody."""
POLICY_VIOLATION = 1008
_CHALLENGE = b'Bearer realm="watchword"'
# What a client must not say of itself; an underscore or a dot passes for a hyphen in some frameworks.
_OURS = frozenset({b"x-auth-urn", b"x-auth-token-id", b"x-auth-scopes", b"x-service-actor", b"x-datahub-actor"})
_log = logging.getLogger("watchword.client")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What Watchword said: whose token it is, or what to tell the client."""

    identity: Identity | None
    status: int = 200
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""


class VerifyTokens:
    """`require` names scopes that a token must have, `privileges` what its actor must hold, `audience` for whom it must
    be: without it, a token that is limited to an audience must name Watchword's issuer. `public` has the paths that
    anybody may ask for, spelled as they are. `remember` keeps a yes for so many seconds, for which a revoked token then
    lives on; 0, as it is, keeps nothing.

    The application finds an `Identity` in `request.state.watchword`.
    """

    def __init__(
        self,
        app: App,
        *,
        server: str = DEFAULT_URL,
        require: Iterable[str] = (),
        privileges: Iterable[str] = (),
        audience: Iterable[str] = (),
        public: Iterable[str] = (),
        remember: float = 0.0,
        timeout: float = 5.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        if not 0 <= remember <= LONGEST_MEMORY:
            raise ValueError(f"remember must be 0 to {LONGEST_MEMORY:.0f} seconds.")
        if not timeout > 0:
            raise ValueError("timeout must be more than 0 seconds.")
        self._app = app
        self._connection = ServerConnection(server, None, None, 0)
        self._timeout = timeout
        self._verify = verify
        self._url = self._connection.url + "/auth" + _query(require, privileges, audience)
        self._public = frozenset(_words("public", public))
        self._memory = _Memory(remember)
        self._pool: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._app(scope, receive, self._closing(send))
            case "http" | "websocket":
                await self._guard(scope, receive, send)
            case other:
                raise ValueError(f"VerifyTokens knows http, websocket and lifespan, not {other}.")

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if _plain(name) not in _OURS]
        passed = {**scope, "headers": headers}
        state = scope.setdefault("state", {})
        if scope["path"] not in self._public:
            answer = await self._ask(scope)
            if answer.identity is None:
                refuse = _refuse_socket if scope["type"] == "websocket" else _refuse
                await refuse(answer, scope, receive, send)
                return
            state["watchword"] = answer.identity
        await self._app({**passed, "state": state}, receive, send)

    async def _ask(self, scope: Scope) -> _Answer:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            wanted = "must be given once" if given else "must bring a token: Bearer <token>"
            word = Reason.MISSING_CREDENTIAL.word
            return _no(UNAUTHENTICATED, word, f"The Authorization header {wanted}.", (b"www-authenticate", _CHALLENGE))
        value = given[0].strip(b" \t")  # which HTTP/2 lets pass, and HTTP/1 takes off
        if len(value) > MAX_AUTHORIZATION:
            return _no(BAD_REQUEST, Reason.INVALID_HEADER.word, AUTHORIZATION_TOO_LONG)
        host = (scope.get("client") or ("",))[0]
        known = self._memory.find(value, host)
        if known is not None:
            return _Answer(known)
        try:
            answer = await self._answer(value, host)
        except httpx.LocalProtocolError:  # whose words are those of the header, which may be a token
            return self._away("the request for it could not be written")
        except (httpx.HTTPError, TimeoutError) as error:
            return self._away(f"{type(error).__name__}: {error}".rstrip(": "))
        if answer.identity is not None:
            self._memory.keep(value, host, answer.identity)
        return answer

    async def _answer(self, authorization: bytes, host: str) -> _Answer:
        headers = [
            (b"authorization", authorization),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
        ]
        if host:
            headers.append((b"x-forwarded-for", host.encode()))
        async with asyncio.timeout(self._timeout):
            for left in reversed(range(TRIES)):
                try:
                    return await self._once(headers)
                except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                    if not left:
                        raise
        raise AssertionError("there is a last try")

    async def _once(self, headers: list[Header]) -> _Answer:
        async with self._http().stream("GET", self._url, headers=headers, follow_redirects=False) as response:
            if response.status_code in {200, 204}:
                return self._yes(response.headers)
            if response.status_code not in {400, 401, 403}:
                return self._away(f"it answered {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > LONGEST_REFUSAL:
                    return self._away("its answer is too long to be Watchword's")
            told = [name for name in ("content-type", "www-authenticate") if name in response.headers]
            sent = [(name.encode(), response.headers[name].encode("latin-1")) for name in told]
            return _Answer(None, response.status_code, sent, bytes(body))

    def _yes(self, headers: httpx.Headers) -> _Answer:
        try:
            scopes = tuple(headers["x-auth-scopes"].split())
            return _Answer(Identity(headers["x-auth-urn"], headers["x-auth-token-id"], scopes))
        except KeyError:
            return self._away("what answered is not Watchword")

    def _away(self, why: str) -> _Answer:
        """The client is told no more than that it may come again; who runs the application finds why in its log."""
        _log.warning("%s could not be asked about a token: %s", self._connection, why)
        sentence = "Tokens cannot be checked at the moment. Try again soon."
        return _no(UNAVAILABLE, "watchword_unavailable", sentence, (b"retry-after", b"1"))

    def _http(self) -> httpx.AsyncClient:
        """The connections of this event loop, kept from one request to the next."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            socket = self._connection.socket
            transport = None if socket is None else httpx.AsyncHTTPTransport(uds=socket)
            with usable_proxy():
                made = httpx.AsyncClient(transport=transport, **self._connection.options(self._timeout, self._verify))
            self._pool = loop, made
        return self._pool[1]

    def _closing(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown.") and self._pool is not None:
                (_, pool), self._pool = self._pool, None
                await pool.aclose()
            await send(message)

        return sending


class _Memory:
    """Who brought which token, from where: not the token, but a digest of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    def find(self, authorization: bytes, host: str) -> Identity | None:
        if not self._seconds:
            return None
        until, identity = self._known.get(_digest(authorization, host), (0.0, None))
        return identity if time.monotonic() < until else None

    def keep(self, authorization: bytes, host: str, identity: Identity) -> None:
        if self._seconds:
            key = _digest(authorization, host)
            self._known[key] = time.monotonic() + self._seconds, identity
            self._known.move_to_end(key)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)


def _digest(authorization: bytes, host: str) -> bytes:
    return sha256(host.encode() + b"\0" + authorization).digest()


def _query(require: Iterable[str], privileges: Iterable[str], audience: Iterable[str]) -> str:
    wanted = {
        "scope": ("require", require),
        "privilege": ("privileges", privileges),
        "audience": ("audience", audience),
    }
    asked = [(f"watchword.{kind}", word) for kind, (name, words) in wanted.items() for word in _words(name, words)]
    return "?" + urlencode(asked) if asked else ""


def _words(name: str, given: Iterable[str]) -> list[str]:
    """A word alone would be taken for its letters, each of which nobody has."""
    if isinstance(given, str):
        raise ValueError(f"{name} must be a list, such as ['{given}'].")  # noqa: TRY004 - as of all arguments
    return list(given)


def _plain(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-").replace(b".", b"-")


def _no(kind: Kind, reason: str, message: str, *headers: Header) -> _Answer:
    """In the form of Watchword's own refusals."""
    content = {"code": kind.code, "type": kind.type, "reason": reason, "message": message}
    body = json.dumps({"error": content}).encode()
    return _Answer(None, kind.code, [(b"content-type", b"application/json; charset=utf-8"), *headers], body)


async def _refuse(answer: _Answer, scope: Scope, receive: Receive, send: Send, prefix: str = "http") -> None:
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body)), (b"cache-control", b"no-store")]
    await send({"type": f"{prefix}.response.start", "status": answer.status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": answer.body})


async def _refuse_socket(answer: _Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Before it is opened; a server that cannot hand on an answer of ours says 403 in its place."""
    await receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        await _refuse(answer, scope, receive, send, "websocket.http")
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
