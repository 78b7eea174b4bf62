"""Sends webhooks: one POST, bounded in time and size, to an address that was checked.

A host is resolved once for each attempt. Every address that it resolves to must be allowed, and the connection goes to
one of these addresses, so a name cannot lead elsewhere between the check and the connection. TLS verifies the name.
Proxies of the environment are ignored, redirects are not followed, and each connection is used once.
"""

import asyncio
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import httpx

from watchword import __version__
from watchword.domain.errors import Fault, invalid
from watchword.domain.networks import Address, Network
from watchword.domain.ports import Clock
from watchword.domain.webhooks import MAX_ANSWER, Attempt, WebhookUrl, is_allowed, is_within, parse_url

SECONDS = 10.0
CONNECT_SECONDS = 4.0
MAX_READ = 64 * 1024
MAX_LOOKUPS = 32
MAX_ERROR = 300
_HEADERS = {
    "content-type": "application/json",
    "accept-encoding": "identity",
    "connection": "close",
    "user-agent": f"Watchword/{__version__}",
}


class NotAllowed(Exception):
    """The message says which address, and why."""


class WebhookClient:
    def __init__(self, networks: Collection[Network], clock: Clock, *, allow_http: bool) -> None:
        self._networks = networks
        self._allow_http = allow_http
        self._clock = clock
        self._tls = httpx.create_ssl_context()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)

    async def check(self, url: str) -> None:
        """Raise the error for the caller unless messages may be sent there. A name that cannot be resolved passes: its
        addresses are checked with each attempt.
        """
        target = parse_url(url)
        try:
            async with asyncio.timeout(SECONDS):
                await self._allowed_addresses(target)
        except NotAllowed as problem:
            raise invalid("url", f"url is not allowed: {problem}") from None
        except (OSError, TimeoutError):
            if target.scheme == "http" and not self._allow_http:
                raise invalid("url", f"url is not allowed: {_NEEDS_HTTPS}") from None

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> Attempt:
        at, began = self._clock(), time.monotonic()
        status, error, answer = None, None, None
        try:
            async with asyncio.timeout(SECONDS):
                status, answer = await self._post(parse_url(url), headers, body)
        except TimeoutError:
            error = f"No complete answer within {SECONDS:.0f} s."
        except (NotAllowed, Fault) as problem:
            error = str(problem)
        except socket.gaierror as problem:
            error = f"The host name {parse_url(url).host} cannot be resolved ({problem.strerror})."
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        shown = None if error is None else error[:MAX_ERROR]
        return Attempt(at, int((time.monotonic() - began) * 1_000), status, shown, answer)

    async def _post(self, target: WebhookUrl, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        addresses = await self._allowed_addresses(target)
        for address in addresses:
            try:
                return await self._post_to(address, target, headers, body)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise AssertionError(addresses)

    async def _post_to(
        self, address: Address, target: WebhookUrl, headers: dict[str, str], body: bytes
    ) -> tuple[int, str]:
        host = f"[{address}]" if address.version == 6 else str(address)
        request = httpx.Request(
            "POST",
            f"{target.scheme}://{host}:{target.port}{target.path}",
            headers={"host": target.netloc, **_HEADERS, **headers},
            content=body,
            # TLS verifies the certificate for this name.
            extensions={"sni_hostname": target.host.rstrip("."), "timeout": {"connect": CONNECT_SECONDS}},
        )
        # Not a client, which would keep cookies. A transport of its own: no connection is shared between two names.
        async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                return response.status_code, await _beginning(response)
            finally:
                await response.aclose()

    async def _allowed_addresses(self, target: WebhookUrl) -> list[Address]:
        """The addresses of the host, if all of them are allowed."""
        addresses = await self._resolve(target)
        for address in addresses:
            if not is_allowed(address, self._networks):
                raise NotAllowed(
                    f"{target.host} has the address {address}, which is not public. "
                    "WATCHWORD_WEBHOOK_ALLOWED_NETWORKS can allow its network."
                )
        is_inside = all(is_within(address, self._networks) for address in addresses)
        if target.scheme == "http" and not (self._allow_http or is_inside):
            raise NotAllowed(_NEEDS_HTTPS)
        return addresses

    async def _resolve(self, target: WebhookUrl) -> list[Address]:
        """Resolve the host in its own thread: a slow name server delays neither other work nor the exit."""
        with suppress(ValueError):
            return [ipaddress.ip_address(target.host)]
        if f".{target.host.rstrip('.').lower()}".endswith(".localhost"):  # RFC 6761
            return [ipaddress.IPv4Address("127.0.0.1")]
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Address]] = loop.create_future()

        def settle(set_outcome: Callable[[], None]) -> None:
            self._lookups.release()
            if not found.done():
                set_outcome()

        def look_up() -> None:
            try:
                rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
                # Without the zone of a link-local address, which is not allowed anyway.
                texts = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows)
                outcome = partial(found.set_result, [ipaddress.ip_address(text) for text in texts])
            except (OSError, ValueError) as error:
                outcome = partial(found.set_exception, error if isinstance(error, OSError) else OSError(str(error)))
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, outcome)

        await self._lookups.acquire()
        threading.Thread(target=look_up, daemon=True).start()
        return await found


_NEEDS_HTTPS = "it must begin with https://. WATCHWORD_WEBHOOK_ALLOW_HTTP can allow http."


async def _beginning(response: httpx.Response) -> str:
    """The first kilobyte of the body, as it came. A little more is read, so that the receiver can finish; not all of
    it.
    """
    kept, read = b"", 0
    async for chunk in response.aiter_raw():
        kept = (kept + chunk[:MAX_ANSWER])[:MAX_ANSWER]
        read += len(chunk)
        if read > MAX_READ:
            break
    return kept.decode(errors="replace").replace("\x00", "")
