"""`AsyncClient`, and how it sends a request."""

import ssl
from typing import Any, Self, TypeVar

import httpx

from watchword.basics.names import DEFAULT_URL
from watchword.client.answers import UserInfo
from watchword.client.asynchronous.actors import (
    AsyncAccounts,
    AsyncActors,
    AsyncGroups,
    AsyncMailPreferences,
    AsyncSessions,
)
from watchword.client.asynchronous.audit import AsyncEvents, AsyncWebhooks
from watchword.client.asynchronous.operations import AsyncOperations, AsyncSeries
from watchword.client.asynchronous.policies import AsyncPolicies, AsyncPrivileges, AsyncResources
from watchword.client.asynchronous.retention import AsyncRetention
from watchword.client.asynchronous.tokens import AsyncDeviceLogins, AsyncTokens
from watchword.client.asynchronous.transport import deadline, open_http, run_blocking, sleep
from watchword.client.errors import UnknownFields, WatchwordError
from watchword.client.http_clients import (
    AnswerBody,
    Bearer,
    RequestRetries,
    ServerConnection,
    environment_caller,
    profile_caller,
    read_answer,
)
from watchword.client.records import Json, ServerInfo, record
from watchword.client.requests import ApiRequest, ask

T = TypeVar("T")


class AsyncClient:
    """A client of one server. Use it as a context manager, or `close` it.

    `token`, a string, `Secret` or `TokenFile`, identifies the caller. `actor` does so for a server in local mode. `url`
    may also be `unix:/path/of.sock`. `timeout` is the time in seconds for one try, to the last byte of its answer.
    `verify` takes an `ssl.SSLContext` for a private certificate authority. `http` is a client of httpx to use, with its
    own timeout and certificates; it is not closed.

    `retries` is how often a request is retried, after pauses of 0.1 s, 0.2 s, … or as long as the server asks, at most
    30 s. Reads are retried when no answer came or the server is unavailable. A change is retried only if the server
    said that it changed nothing (503, or 429 with a time to wait): without an answer, it may have been made. Methods
    that take an `idempotency_key` are also retried after a lost answer, because the server carries them out once.

    Fields of records that an older server does not have are None.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: Bearer | None = None,
        actor: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
        verify: ssl.SSLContext | bool = True,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._server = ServerConnection(url, token, actor, retries)
        if http is not None and self._server.socket is not None:
            raise ValueError("Give http a transport for the Unix socket, and url as http://localhost.")
        self._closes = http is None
        self._timeout = timeout if http is None else None
        self._http = http or open_http(self._server, timeout, verify)
        self.accounts = AsyncAccounts(self._send)
        self.actors = AsyncActors(self._send)
        self.device_logins = AsyncDeviceLogins(self._send)
        self.events = AsyncEvents(self._send)
        self.groups = AsyncGroups(self._send)
        self.mail_preferences = AsyncMailPreferences(self._send)
        self.operations = AsyncOperations(self._send)
        self.policies = AsyncPolicies(self._send)
        self.privileges = AsyncPrivileges(self._send)
        self.resources = AsyncResources(self._send)
        self.retention = AsyncRetention(self._send)
        self.series = AsyncSeries(self._send)
        self.sessions = AsyncSessions(self._send)
        self.tokens = AsyncTokens(self._send)
        self.webhooks = AsyncWebhooks(self._send)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server})"

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """Connect as the command line does: to WATCHWORD_URL with WATCHWORD_TOKEN, or by the profile that
        WATCHWORD_PROFILE names, or by the current profile of `watchword login`. `options` are those of the constructor.
        """
        return cls(environment_caller(options), **options)

    @classmethod
    def from_profile(cls, name: str, **options: Any) -> Self:
        """Connect with the server and the token that `watchword login --profile NAME` stored."""
        url, token = profile_caller(name)
        return cls(url, token=token, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._closes:
            await self._http.aclose()

    async def me(self) -> UserInfo:
        """Get the actor that this client acts as."""
        return await self._send(ask("me", UserInfo, part="corpUser"))

    async def server_info(self) -> ServerInfo:
        """Get the server's version and what it can do. Needs no credential."""
        return await self._send(
            ApiRequest(lambda answer: record(ServerInfo, answer["watchword"]), "/config", public=True)
        )

    async def jwks(self) -> Json:
        """Get the server's public keys, as a JSON Web Key Set. Needs no credential."""

        def read(answer: Json) -> Json:
            if not all(isinstance(key["kid"], str) for key in answer["keys"]):
                raise ValueError("a key without an id")
            return answer

        return await self._send(ApiRequest(read, "/.well-known/jwks.json", public=True))

    async def _send(self, whole: ApiRequest[T]) -> T:
        request = self._server.known(whole)
        retries = RequestRetries(request, self._server.retries)
        while True:
            try:
                return await self._send_once(request)
            except UnknownFields as failure:
                request = self._server.without(request, whole, failure)
            except WatchwordError as failure:
                pause = retries.pause_after(failure)
                if pause is None:
                    raise (await run_blocking(self._server.explain, failure) if self._closes else failure) from None
                await sleep(pause)

    async def _send_once(self, request: ApiRequest[T]) -> T:
        try:
            async with deadline(self._timeout), self._http.stream(**self._server.request(request)) as response:
                body = AnswerBody(response)
                if not response.is_closed:
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._server.lost(error) from None
        return read_answer(request, response.status_code, response.headers, body.content)
