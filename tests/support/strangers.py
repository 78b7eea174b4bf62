"""Programs at an address where Watchword was expected, as they are met in the wild. Each counts who came."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ForeignServer:
    def __init__(self, server: socketserver.BaseServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[index]
        self.came: list[str] = []


@contextmanager
def _running(make: Callable[[list[str]], socketserver.BaseServer]) -> Iterator[ForeignServer]:
    came: list[str] = []
    server = make(came)
    stranger = ForeignServer(server)
    stranger.came = came
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stranger
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def web_server(status: int, body: str = "<h1>Hello</h1>", **headers: str) -> Iterator[ForeignServer]:
    """Answers everything with the same page."""

    def make(came: list[str]) -> socketserver.BaseServer:
        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                came.append(str(self.headers))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                for name, value in {"Content-Type": "text/html", **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST  # noqa: N815 - the library's word

            def log_message(self, *_: object) -> None: ...

        return ThreadingHTTPServer(("127.0.0.1", 0), Page)

    with _running(make) as stranger:
        yield stranger


@contextmanager
def cut_line() -> Iterator[ForeignServer]:
    """Takes the request and hangs up."""

    def make(came: list[str]) -> socketserver.BaseServer:
        class HangUp(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                came.append(self.request.recv(65_536).decode("latin-1"))

        return socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangUp)

    with _running(make) as stranger:
        yield stranger


@contextmanager
def endless(head: bytes, again: bytes, *, pause: float = 0) -> Iterator[ForeignServer]:
    """Takes the request, begins an answer, and goes on with the same piece for as long as anybody listens."""
    over = threading.Event()

    def make(came: list[str]) -> socketserver.BaseServer:
        class Endless(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                came.append(self.request.recv(65_536).decode("latin-1"))
                with suppress(OSError):
                    self.request.sendall(head)
                    while not over.wait(pause):
                        self.request.sendall(again)

        return socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless)

    with _running(make) as stranger:
        try:
            yield stranger
        finally:
            over.set()
