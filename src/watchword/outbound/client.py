"""The worker's side of the process that sends requests to strangers: starts it with the first request, again after it
died, and ends it when nothing was sent for a minute.

A worker verifies tokens, so it parses nothing that a stranger sends but the bytes of a body. Requests go to the process
through a pair of sockets, never through arguments, the environment or files: they hold secrets. When the process dies,
the requests in flight fail as if their connections had broken.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import certifi

from watchword.outbound import rules as outbound
from watchword.outbound.rules import AddressRule, OutboundAnswer, OutboundError, OutboundProblem, OutboundRequest
from watchword.outbound.wire import cancel_frame, read_answer, read_frame, request_frame

IDLE_SECONDS = 60.0
PATIENCE = 5.0
"""A process that gives no answer so many seconds after the time of a request is killed."""
STOP_SECONDS = 2.0


class OutboundProcess:
    """One for each worker. `environment` is that of the process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._starting = asyncio.Lock()
        self._link: _Link | None = None

    async def check(self, url: outbound.OutboundUrl, rule: AddressRule, seconds: float) -> None:
        """Look the host up. An `OutboundError` unless all its addresses are allowed."""
        await self._ask(OutboundRequest("GET", url, outbound.AnswerBounds(seconds, 0, 0, 0), rule=rule), check=True)

    async def send(self, request: OutboundRequest) -> OutboundAnswer:
        """The answer, or an `OutboundError`."""
        return await self._ask(request, check=False)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _ask(self, request: OutboundRequest, *, check: bool) -> OutboundAnswer:
        async with self._starting:
            if self._link is None or self._link.is_closed:
                self._link = await _Link.start(self._environment)
            link = self._link
        return await link.ask(request, check=check)


class _Link:
    """One running process, and the requests that wait for its answers."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: dict[int, asyncio.Future[OutboundAnswer]] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._reading = asyncio.ensure_future(self._read())
        self.is_closed = False

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.to_thread(_start, theirs.fileno(), environment)
                return cls(process, *await asyncio.open_unix_connection(sock=ours))
            except OSError as error:
                ours.close()
                reason = f"The process for outgoing requests cannot start: {error.strerror or error}."
                raise OutboundError(OutboundProblem.PROCESS, reason) from None

    async def ask(self, request: OutboundRequest, *, check: bool) -> OutboundAnswer:
        self._number += 1
        number = self._number
        answer: asyncio.Future[OutboundAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        if self._idle is not None:
            self._idle.cancel()
        try:
            self._writer.write(request_frame(number, request, check=check))
            async with asyncio.timeout(request.bounds.seconds + PATIENCE):
                return await answer
        except TimeoutError:
            self._process.kill()
            reason = "The process for outgoing requests did not answer in time."
            raise OutboundError(OutboundProblem.PROCESS, reason) from None
        except asyncio.CancelledError:
            if not self.is_closed:
                self._writer.write(cancel_frame(number))
            raise
        finally:
            del self._waiting[number]
            if not self._waiting and not self.is_closed:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)

    async def close(self) -> None:
        self._end()
        await asyncio.wait([self._reading])

    def _end(self) -> None:
        """The process ends when the socket is closed."""
        self.is_closed = True
        self._writer.close()

    async def _read(self) -> None:
        try:
            with suppress(EOFError, OSError, ValueError, KeyError):
                while True:
                    head, body = await read_frame(self._reader)
                    answer, waiting = read_answer(head, body), self._waiting.get(head["id"])
                    if waiting is None or waiting.done():
                        continue
                    if isinstance(answer, OutboundError):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)
        finally:
            self._end()
            status = await asyncio.to_thread(_reap, self._process)
            for waiting in self._waiting.values():
                if not waiting.done():
                    reason = f"The process for outgoing requests ended with the exit status {status}."
                    waiting.set_exception(OutboundError(OutboundProblem.PROCESS, reason))


def _start(descriptor: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A new interpreter, not a fork: it has no copy of the keys, and other threads of the worker do not matter."""
    ca_file, ca_path = environment.get("SSL_CERT_FILE", ""), environment.get("SSL_CERT_DIR", "")
    if ca_file:
        ca_path = ""
    elif not ca_path:
        ca_file = certifi.where()
    return subprocess.Popen(  # noqa: S603 - nothing of a request is in it
        [sys.executable, "-P", "-m", "watchword.outbound.process", str(descriptor), ca_file, ca_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
        pass_fds=[descriptor],
    )


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
