"""The process that sends requests to strangers and reads their answers: `python -m watchword.outbound.process`, started
by a worker with a socket, a CA file and a CA folder.

It knows no key and no store, only the requests that come over the socket. It runs at a low priority, in limited memory,
writes no file, and ends when the socket is closed, and so with its worker.
"""

import asyncio
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from json import dumps
from traceback import extract_tb
from typing import Any, NoReturn

from watchword.outbound.addresses import STACK, addresses_of
from watchword.outbound.exchange import exchange
from watchword.outbound.rules import OutboundAnswer, OutboundError, OutboundProblem
from watchword.outbound.wire import answer_frame, read_frame, read_request

NICENESS = 15
"""Not the lowest: people who sign in wait for the answers of the identity provider."""
MAX_MEMORY = 256 * 1024 * 1024


async def serve(line: socket.socket, ca_file: str | None, ca_path: str | None) -> None:
    """Until the other side closes."""
    tls = cache(partial(ssl.create_default_context, cafile=ca_file, capath=ca_path))
    reader, writer = await asyncio.open_unix_connection(sock=line)
    running: dict[int, asyncio.Task[None]] = {}

    async def answer(head: dict[str, Any], body: bytes) -> None:
        told = await _answer(head, body, tls)
        writer.write(answer_frame(head["id"], told))

    with suppress(EOFError, OSError):
        while True:
            head, body = await read_frame(reader)
            number: int = head["id"]
            if "cancel" not in head:
                running[number] = asyncio.ensure_future(answer(head, body))
                running[number].add_done_callback(partial(_forget, running, number))
            elif number in running:
                running[number].cancel()


def _forget(running: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    del running[number]


async def _answer(
    head: dict[str, Any], body: bytes, tls: Callable[[], ssl.SSLContext]
) -> OutboundAnswer | OutboundError:
    try:
        request = read_request(head, body)
        if not head["check"]:
            return await exchange(request, tls)
        async with asyncio.timeout(request.bounds.seconds):
            await addresses_of(request.url, request.rule)
        return OutboundAnswer(0, b"", is_whole=True)
    except OutboundError as error:
        return error
    except TimeoutError:
        return OutboundError(OutboundProblem.TIME, f"The host name {request.url.host} is not resolved in time.")
    except Exception as bug:  # noqa: BLE001 - of one request
        _log(bug)
        return OutboundError(OutboundProblem.PROCESS, "internal error")


def _log(bug: Exception) -> None:
    """A line in the log of the server. Without the message, which may have the URL."""
    where = extract_tb(bug.__traceback__)[-1]
    what = f"outgoing request: bug: {type(bug).__name__} in {where.name}, line {where.lineno} of {where.filename}"
    line = {"event": what, "level": "error", "timestamp": datetime.now(UTC).isoformat()}
    sys.stderr.write(dumps(line) + "\n")
    sys.stderr.flush()


def main(descriptor: str, ca_file: str, ca_path: str) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which then closes the socket
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    threading.stack_size(STACK)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    with suppress(OSError):
        os.nice(NICENESS)
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), ca_file or None, ca_path or None))
    os._exit(0)  # a lookup of a name may still run in its thread


if __name__ == "__main__":
    main(*sys.argv[1:])
