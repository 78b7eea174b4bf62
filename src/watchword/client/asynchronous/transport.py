"""What the asynchronous client needs of httpx and asyncio. `synchronous/transport.py` has the same names."""

import ssl
from asyncio import sleep, timeout, to_thread

import httpx

from watchword.client.http_clients import ServerConnection

__all__ = ["deadline", "open_http", "run_blocking", "sleep"]

deadline = timeout
run_blocking = to_thread


def open_http(server: ServerConnection, timeout: float, verify: ssl.SSLContext | bool) -> httpx.AsyncClient:
    with server.proxy() as proxy:
        transport = httpx.AsyncHTTPTransport(verify=server.verify_for(verify), uds=server.socket, proxy=proxy)
    return httpx.AsyncClient(transport=transport, timeout=timeout)
