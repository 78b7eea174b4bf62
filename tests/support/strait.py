"""A strait before a real database: it passes everything on, and can lose or hold what a test waits for.

- An answer is lost: the server did what it was asked, and nobody hears of it.
- A request is held: whoever sent it sees the connection end, and the server gets it late, or never.
- All fall silent: nothing passes in either direction, and nobody is told.
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
class _Ship:
    """One connection: what the client holds of it, and what the server does."""

    client: socket.socket
    server: socket.socket
    loses: bool = False
    held: bytes = b""
    """A request that its client has lost, and that the server has not had yet."""
    dealt_with: threading.Event = field(default_factory=threading.Event)
    """The server has answered what was held."""

    def sink(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Strait:
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
        self._ships: list[_Ship] = []
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
        for ship in self._ships:
            ship.client.close()
            ship.server.close()

    def lose_answer(self, *, after: int = 0, for_good: bool = False) -> None:
        """Of the next request on any connection, but for so many. For good: then all fall silent."""
        self._after = after
        self._for_good = for_good
        self._plan = "lose"

    def hold_next_request(self, *, for_good: bool = False) -> None:
        """For good: in the same moment all fall silent, so that nobody is quick enough to ask again."""
        self._held.clear()
        self._after = 0
        self._for_good = for_good
        self._plan = "hold"

    def release(self) -> None:
        """Let the server have what was held, and wait until it has dealt with it."""
        assert self._held.wait(SECONDS), "nothing was held"
        ship = next(ship for ship in self._ships if ship.held)
        ship.server.sendall(ship.held)
        assert ship.dealt_with.wait(SECONDS), "the server never answered"
        ship.sink()

    def silence(self) -> None:
        """From now on nothing passes, on old and new connections."""
        self._calm.clear()

    def calm(self) -> None:
        self._calm.set()

    def cut(self) -> None:
        for ship in list(self._ships):
            ship.sink()

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
                ship = _Ship(client, socket.create_connection(self._upstream))
            except OSError:
                client.close()
                continue
            self._ships.append(ship)
            self._start(self._out, ship)
            self._start(self._back, ship)

    def _due(self) -> str:
        """What becomes of this request: nothing, unless it is the one that was meant."""
        with self._turn:
            if self._plan and self._after:
                self._after -= 1
                return ""
            plan, self._plan = self._plan, ""
            return plan

    def _out(self, ship: _Ship) -> None:
        with suppress(OSError):
            while piece := ship.client.recv(PIECE):
                self._calm.wait()
                plan = self._due()
                if plan == "hold":
                    if self._for_good:
                        self.silence()
                    ship.held = piece
                    self._held.set()
                    ship.client.shutdown(socket.SHUT_RDWR)
                    return
                ship.loses = plan == "lose"
                ship.server.sendall(piece)
        if not ship.held:
            ship.sink()

    def _back(self, ship: _Ship) -> None:
        with suppress(OSError):
            while piece := ship.server.recv(PIECE):
                self._calm.wait()
                if ship.held:
                    ship.dealt_with.set()
                    return
                if ship.loses:
                    if self._for_good:
                        self.silence()
                    break
                ship.client.sendall(piece)
        if not ship.held:
            ship.sink()
