"""A TCP proxy before a real database that can lose answers and delay requests:

- lost answer: the server executes the request, the client gets no answer;
- held request: the client loses its connection, and the server gets the request late or never;
- silence: nothing passes in either direction.
"""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.waiting import SECONDS

PIECE = 65_536


@dataclass
class _Connection:
    """The two sockets of a proxied connection."""

    client: socket.socket
    server: socket.socket
    loses: bool = False
    held: bytes = b""
    """A request not forwarded yet, whose client is disconnected."""
    dealt_with: threading.Event = field(default_factory=threading.Event)
    """The server has answered the held request."""

    def shut_down(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class FaultyProxy:
    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._plan = ""
        self._after = 0
        self._for_good = False
        self._turn = threading.Lock()
        self._held = threading.Event()
        self._calm = threading.Event()
        self._calm.set()
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._calm.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)
        for connection in self._connections:
            connection.client.close()
            connection.server.close()

    def lose_answer(self, *, after: int = 0, for_good: bool = False) -> None:
        """Lose the answer to the next request after `after` others. `for_good`: then silence everything."""
        self._after = after
        self._for_good = for_good
        self._plan = "lose"

    def hold_request(self, *, after: int = 0, for_good: bool = False) -> None:
        """Hold the next request after `after` others. `for_good`: silence everything at the same time."""
        self._held.clear()
        self._after = after
        self._for_good = for_good
        self._plan = "hold"

    def release(self) -> None:
        """Forward the held request and wait for its answer."""
        assert self._held.wait(SECONDS), "nothing was held"
        connection = next(connection for connection in self._connections if connection.held)
        with suppress(OSError):  # the server may have ended the session
            connection.server.sendall(connection.held)
        assert connection.dealt_with.wait(SECONDS), "the server never answered"
        connection.shut_down()

    def silence(self) -> None:
        """Pass nothing, on old and new connections."""
        self._calm.clear()

    def stop_faults(self) -> None:
        self._calm.set()

    def cut(self) -> None:
        for connection in list(self._connections):
            connection.shut_down()

    def _start(self, work: object, *bound: object) -> None:
        thread = threading.Thread(target=work, args=bound, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                connection = _Connection(client, socket.create_connection(self._upstream))
            except OSError:
                client.close()
                continue
            self._connections.append(connection)
            self._start(self._out, connection)
            self._start(self._back, connection)

    def _due(self) -> str:
        """The action for this request, if it is the planned one."""
        with self._turn:
            if self._plan and self._after:
                self._after -= 1
                return ""
            plan, self._plan = self._plan, ""
            return plan

    def _out(self, connection: _Connection) -> None:
        with suppress(OSError):
            while piece := connection.client.recv(PIECE):
                self._calm.wait()
                plan = self._due()
                if plan == "hold":
                    if self._for_good:
                        self.silence()
                    connection.held = piece
                    self._held.set()
                    connection.client.shutdown(socket.SHUT_RDWR)
                    return
                connection.loses = plan == "lose"
                connection.server.sendall(piece)
        if not connection.held:
            connection.shut_down()

    def _back(self, connection: _Connection) -> None:
        with suppress(OSError):
            while piece := connection.server.recv(PIECE):
                self._calm.wait()
                if connection.held:
                    connection.dealt_with.set()
                    return
                if connection.loses:
                    if self._for_good:
                        self.silence()
                    break
                connection.client.sendall(piece)
        if not connection.held:
            connection.shut_down()
