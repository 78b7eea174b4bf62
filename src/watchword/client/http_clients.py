"""`Client` and `AsyncClient`: how requests are sent. What can be asked for is in `api`."""

import ssl
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar

import httpx

from watchword.client.api import Api
from watchword.client.api_requests import AnswerBody, ApiRequest, Listing, Retries, read_answer
from watchword.client.connection import Bearer, ServerConnection, deadline
from watchword.client.errors import ProfileChoiceError, WatchwordError
from watchword.client.profiles import DEFAULT_URL, Profiles, choose_server, read_environment

T = TypeVar("T")


class _HttpClient(Api):
    _connection: ServerConnection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection})"

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """Connect as the command line does: to WATCHWORD_URL with WATCHWORD_TOKEN, or by the profile that
        WATCHWORD_PROFILE names, or by the current profile of `watchword login`. `options` are those of the constructor.
        """
        environment = read_environment()
        profiles = Profiles(environment.folder)
        has_caller = bool(options.keys() & {"token", "actor"})
        chosen = choose_server(environment, profiles, has_caller=has_caller or environment.token is not None)
        if not has_caller:
            options["token"] = environment.token or (profiles.token(chosen.profile) if chosen.profile else None)
            if options["token"] is None:
                raise ProfileChoiceError("No credential. Set WATCHWORD_TOKEN, or sign in: watchword login")
        make: Any = cls
        return make(chosen.url, **options)  # type: ignore[no-any-return]

    @classmethod
    def from_profile(cls, name: str, **options: Any) -> Self:
        """Connect with the server and the token that `watchword login --profile NAME` stored."""
        profiles = Profiles(read_environment().folder)
        profile = profiles.get(name)
        make: Any = cls
        return make(profile.url, token=profiles.token(profile), **options)  # type: ignore[no-any-return]


class Client(_HttpClient):
    """A client of one server. Use it as a context manager, or `close` it.

    `token`, a string, `Secret` or `TokenFile`, identifies the caller. `actor` does so for a server in local mode. `url`
    may also be `unix:/path/of.sock`. `timeout` is the time in seconds for one try, to the last byte of its answer.
    `retries` is how often a request is retried. `http` is an `httpx.Client` to use, with its own timeout and
    certificates; it is not closed.
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
        http: httpx.Client | None = None,
    ) -> None:
        self._connection = ServerConnection(url, token, actor, retries)
        self._connection.check_http(http)
        self._closes = http is None
        self._timeout = timeout if http is None else None
        self._http = http or self._connection.open_client(timeout, verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._closes:
            self._http.close()

    def _send(self, request: ApiRequest[T]) -> T:
        retries = Retries(request, self._connection.retries)
        while True:
            try:
                return self._send_once(request)
            except WatchwordError as failure:
                pause = retries.pause_after(failure)
                if pause is None:
                    raise
            time.sleep(pause)

    def _send_once(self, request: ApiRequest[T]) -> T:
        try:
            with deadline(self._timeout), self._http.stream(**self._connection.request(request)) as response:
                if response.is_closed:  # an event hook of the given client has read it
                    content: bytes | bytearray = response.content
                else:
                    body = AnswerBody(response.headers.get("content-encoding", "").lower())
                    for chunk in response.iter_raw():
                        body.add(chunk)
                    content = body.content
        except httpx.HTTPError as error:
            raise self._connection.lost(error) from None
        return read_answer(request, response.status_code, response.headers, content)

    def _list(self, listing: Listing[Any, T]) -> Iterator[T]:
        while listing.next_request is not None:
            yield from listing.take(self._send(listing.next_request))
            if listing.pause and listing.next_request is not None:
                time.sleep(listing.pause)


class AsyncClient(_HttpClient):
    """The same as `Client` for asyncio: `await` each call, and use `async for` for lists and `async with`."""

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
        self._connection = ServerConnection(url, token, actor, retries)
        self._connection.check_http(http)
        self._closes = http is None
        self._timeout = timeout if http is None else None
        self._http = http or self._connection.open_async_client(timeout, verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._closes:
            await self._http.aclose()

    # asyncio is imported where it is used: the command line, which never needs it, would load it at each start.

    async def _send(self, request: ApiRequest[T]) -> T:
        from asyncio import sleep

        retries = Retries(request, self._connection.retries)
        while True:
            try:
                return await self._send_once(request)
            except WatchwordError as failure:
                pause = retries.pause_after(failure)
                if pause is None:
                    raise
            await sleep(pause)

    async def _send_once(self, request: ApiRequest[T]) -> T:
        from asyncio import timeout

        try:
            async with timeout(self._timeout), self._http.stream(**self._connection.request(request)) as response:
                if response.is_closed:
                    content: bytes | bytearray = response.content
                else:
                    body = AnswerBody(response.headers.get("content-encoding", "").lower())
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
                    content = body.content
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._connection.lost(error) from None
        return read_answer(request, response.status_code, response.headers, content)

    async def _list(self, listing: Listing[Any, T]) -> AsyncIterator[T]:
        from asyncio import sleep

        while listing.next_request is not None:
            for item in listing.take(await self._send(listing.next_request)):
                yield item
            if listing.pause and listing.next_request is not None:
                await sleep(listing.pause)
