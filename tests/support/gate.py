"""A gate before a real search node: it passes every request on, and can hold those that a test waits for.

What is held is forwarded late, as by a network that was slow or a process that was stopped, or never.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import TracebackType
from typing import Self

from tests.support.waiting import SECONDS

Wanted = Callable[[bytes], bool]


def asks(method: str, word: str) -> Wanted:
    """A request line with this method, whose path contains the word."""

    def wanted(line: bytes) -> bool:
        verb, path, _ = line.decode().split(" ", 2)
        return verb == method and word in path

    return wanted


class Gate:
    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.removeprefix("http://").partition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._wanted: Wanted | None = None
        self._held = threading.Event()
        self._open = threading.Event()
        self._forward = True
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._left = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._serve(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._forward = False
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def hold(self, wanted: Wanted, *, after: int = 0) -> None:
        """From now on requests like this, but for so many, wait until they are let go or dropped."""
        with self._lock:
            self._held.clear()
            self._open = threading.Event()
            self._forward = True
            self._left = after
            self._wanted = wanted

    def wait_until_held(self, seconds: float = 120) -> None:
        assert self._held.wait(seconds), "no such request came"

    def hold_instead(self, wanted: Wanted) -> None:
        """Forward what is held, and hold requests like this from then on: none slips through between the two."""
        before = self._open
        self.hold(wanted)
        before.set()

    def pass_others(self) -> None:
        """What is held stays held; hold nothing else any more."""
        self._wanted = None

    def let_go(self) -> None:
        """Forward what is held, and hold nothing any more."""
        self._wanted = None
        self._open.set()

    def drop(self) -> None:
        """What is held never arrives; hold nothing any more."""
        self._forward = False
        self.let_go()

    def _serve(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._serve(self._pass_on, client)

    def _pass_on(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            request = _read_request(client)
            if not request:
                return
            line = request.split(b"\r\n", 1)[0]
            if (opened := self._held_until(line)) is not None:
                opened.wait()
                if not self._forward:
                    return
            with socket.create_connection(self._upstream, timeout=SECONDS) as node:
                node.sendall(request)
                head = b""
                while chunk := node.recv(65_536):
                    head += chunk
                    line, ending, rest = head.partition(b"\r\n")
                    if ending:
                        chunk = line + b"\r\nConnection: close\r\n" + rest
                        break
                while chunk:
                    # Whoever asked may be gone; the node is to do it all the same.
                    with suppress(OSError):
                        client.sendall(chunk)
                    chunk = node.recv(65_536)

    def _held_until(self, line: bytes) -> threading.Event | None:
        with self._lock:
            if self._wanted is None or not self._wanted(line):
                return None
            self._left -= 1
            if self._left >= 0:
                return None
            self._held.set()
            return self._open


def _read_request(client: socket.socket) -> bytes:
    """The whole request, made to be the last of its connection."""
    client.settimeout(SECONDS)
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(65_536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next((int(one.split(b":")[1]) for one in lines if one.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        chunk = client.recv(65_536)
        if not chunk:  # whoever asked was killed in the middle of it
            return b""
        body += chunk
    kept = [one for one in lines if not one.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close", b"", body])


@contextmanager
def gate_to(url: str) -> Iterator[Gate]:
    with Gate(url) as gate:
        yield gate
