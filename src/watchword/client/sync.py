"""The synchronous client."""

import ssl
import time
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from watchword.client import account_calls, calls, operation_calls, token_calls
from watchword.client.connection import DEFAULT_URL, Bearer, ServerConnection, usable_proxy
from watchword.client.deadline import keep_time, within
from watchword.client.errors import WatchwordError
from watchword.client.signatures import as_method
from watchword.client.walks import Walk
from watchword.client.wire import ApiRequest, Body, Tries, read

A = ParamSpec("A")
P = TypeVar("P")
T = TypeVar("T")


def _call(make: Callable[A, ApiRequest[T]]) -> "Callable[Concatenate[Client, A], T]":
    def method(self: "Client", /, *args: A.args, **kwargs: A.kwargs) -> T:
        return self._send(make(*args, **kwargs))

    return as_method(method, make)


def _list(make: Callable[A, Walk[P, T]]) -> "Callable[Concatenate[Client, A], Iterator[T]]":
    def method(self: "Client", /, *args: A.args, **kwargs: A.kwargs) -> Iterator[T]:
        return self._walk(make(*args, **kwargs))

    return as_method(method, make)


class Client:
    """Speaks to one server. Use it as a context manager, or `close` it.

    `token`, which may be a `TokenFile`, or `actor` (believed by a server in local mode alone) says who is calling.
    `url` may also be `unix:/path/of.sock`. `timeout` is for one try as a whole, to the last byte of its answer. An
    `httpx.Client` given as `http` is used as it is, with its own timeout and certificates, and stays open.
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
        self._connection.check_own(http)
        self._own = http is None
        self._seconds = timeout if http is None else None
        self._http = http or self._open(timeout, verify)

    def _open(self, timeout: float, verify: ssl.SSLContext | bool) -> httpx.Client:
        socket = self._connection.socket
        transport = None if socket is None else httpx.HTTPTransport(uds=socket)
        with usable_proxy():
            return keep_time(httpx.Client(transport=transport, **self._connection.options(timeout, verify)))

    def __repr__(self) -> str:
        return f"Client({self._connection})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._own:
            self._http.close()

    def _send(self, call: ApiRequest[T]) -> T:
        tries = Tries(call, self._connection.retries)
        while True:
            try:
                return self._once(call)
            except WatchwordError as failure:
                pause = tries.pause_after(failure)
                if pause is None:
                    raise
            time.sleep(pause)

    def _once(self, call: ApiRequest[T]) -> T:
        try:
            with within(self._seconds), self._http.stream(**self._connection.request(call)) as response:
                content = self._content(response)
        except httpx.HTTPError as error:
            raise self._connection.lost(error) from None
        return read(call, response.status_code, response.headers, content)

    def _content(self, response: httpx.Response) -> bytes | bytearray:
        if response.is_closed:  # read already, by a hook of a client that was given
            return response.content
        body = Body(response.headers.get("content-encoding", "").lower())
        for chunk in response.iter_raw():
            body.add(chunk)
        return body.content

    def _walk(self, walk: Walk[P, T]) -> Iterator[T]:
        while walk.following is not None:
            yield from walk.take(self._send(walk.following))
            if walk.pause and walk.following is not None:
                time.sleep(walk.pause)

    server = _call(calls.server)
    me = _call(calls.me)
    granted_privileges = _call(calls.granted_privileges)
    explain_privilege = _call(calls.explain_privilege)
    privileges = _call(calls.privileges)
    create_token = _call(token_calls.create_token)
    derive_token = _call(token_calls.derive_token)
    rotate_token = _call(token_calls.rotate_token)
    token_page = _call(token_calls.token_page)
    tokens = _list(token_calls.tokens)
    get_token = _call(token_calls.get_token)
    find_token = _call(token_calls.find_token)
    verify_token = _call(token_calls.verify_token)
    revoke_token = _call(token_calls.revoke_token)
    plan_revocation = _call(token_calls.plan_revocation)
    revoke_tokens = _call(token_calls.revoke_tokens)
    surrender_token = _call(token_calls.surrender_token)
    jwks = _call(token_calls.jwks)
    create_service_account = _call(account_calls.create_service_account)
    service_accounts = _list(account_calls.service_accounts)
    get_service_account = _call(account_calls.get_service_account)
    delete_service_account = _call(account_calls.delete_service_account)
    policies = _list(calls.policies)
    get_policy = _call(calls.get_policy)
    create_policy = _call(calls.create_policy)
    update_policy = _call(calls.update_policy)
    delete_policy = _call(calls.delete_policy)
    apply_policies = _call(calls.apply_policies)
    groups = _list(calls.groups)
    get_group = _call(calls.get_group)
    create_group = _call(calls.create_group)
    delete_group = _call(calls.delete_group)
    group_members = _list(calls.group_members)
    add_members = _call(calls.add_members)
    remove_members = _call(calls.remove_members)
    actors = _list(calls.actors)
    actor = _call(calls.actor)
    suspend = _call(calls.suspend)
    offboard = _call(calls.offboard)
    resume = _call(calls.resume)
    events = _list(calls.events)
    event_actions = _call(calls.event_actions)
    task_status = _call(operation_calls.task_status)
    index_sizes = _call(operation_calls.index_sizes)
    timeseries_histogram = _call(operation_calls.timeseries_histogram)
    plan_truncation = _call(operation_calls.plan_truncation)
    truncate = _call(operation_calls.truncate)
    operations = _list(operation_calls.operations)
    operation = _call(operation_calls.operation)
    cancel_operation = _call(operation_calls.cancel_operation)
    watch_operation = _list(operation_calls.watch_operation)
