"""Gateways of others, real and unmodified, run on the very files that the documentation shows.

Nothing is changed in a file but ports. Before the gateway stands a client at an address of its own; behind it an
application that notes what reaches it; and beside it Watchword, with somebody who listens to what it is asked.
"""

import hashlib
import http.client
import itertools
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.clients import client_env, surroundings
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until
from tests.support.wire import Answer

PAGE = ROOT / "docs/how-to/gateways.md"
LISTENS, WATCHWORD, APPLICATION = "8000", "8080", "9000"
"""The ports in the pages."""
CLIENT = "127.0.0.9"
"""Not the gateway's own address, so that the two can be told apart."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PIECE = 65_536

Headers = Iterable[tuple[str, str]]
_probes = itertools.count()


@dataclass(frozen=True)
class Recipe:
    """A part of the page: its one file, and the command that starts the gateway on it."""

    name: str
    file: str

    def block(self, kind: str) -> str:
        (part,) = re.findall(rf"^## {self.name}\n.*?^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL | re.IGNORECASE)
        (code,) = re.findall(rf"^```{kind}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        return str(code)

    @property
    def away(self) -> int:
        """What the page says is answered while Watchword cannot be reached."""
        row = rf"^\| \[\w+\]\(#{self.name}\) \| (\d+) \|"
        (status,) = re.findall(row, PAGE.read_text(), re.MULTILINE)
        return int(status)

    @property
    def kind(self) -> str:
        """How the page marks the file."""
        return {"nginx.conf": "nginx", "Caddyfile": "caddyfile"}.get(self.file, "yaml")

    def program(self) -> Path:
        if self.name == "nginx":
            return Path(need_program("nginx", "nginx-light"))
        return client_env("gateways") / "bin" / self.name


RECIPES = (
    Recipe("nginx", "nginx.conf"),
    Recipe("caddy", "Caddyfile"),
    Recipe("traefik", "traefik.yaml"),
    Recipe("envoy", "envoy.yaml"),
)


@dataclass(frozen=True)
class Seen:
    """A request as it reached the application."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    size: int
    digest: str

    def named(self, name: str) -> list[str]:
        """The values under this name; under every name, too, that CGI or WSGI would take for the same."""
        return [value for key, value in self.headers if re.sub(r"[^a-z0-9]", "-", key.lower()) == name.lower()]


class Application:
    """A plain HTTP server that notes each request by its `X-Probe`."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self._server = _Server(("127.0.0.1", 0), _handler(self.seen))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # gateways keep their connections open
    request_queue_size = 128


def _handler(seen: dict[str, Seen]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

        def _note(self) -> None:
            body = self._body()
            seen[self.headers["X-Probe"]] = Seen(
                self.command, self.path, list(self.headers.items()), len(body), hashlib.sha256(body).hexdigest()
            )
            self.send_response(200)
            self.send_header("Content-Length", "3")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b"ok\n")

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

    for method in METHODS:
        setattr(Handler, f"do_{method}", Handler._note)
    return Handler


class Tap:
    """Between a gateway and Watchword: passes everything on, and knows every head that came by."""

    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def heads(self) -> list[str]:
        return [head.decode("latin-1").lower() for head in b"".join(self.heard).split(b"\r\n\r\n") if head]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                self._open += [client, server]
                threading.Thread(target=self._pass, args=(client, server, self.heard), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, heard: list[bytes] | None) -> None:
        with suppress(OSError):
            while piece := one.recv(PIECE):
                if heard is not None:
                    heard.append(piece)
                other.sendall(piece)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)


class Gateway:
    """A running gateway, and one client of it."""

    def __init__(self, recipe: Recipe, port: int, application: Application) -> None:
        self.recipe = recipe
        self.port = port
        self._application = application

    def connect(self, address: str = CLIENT) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS, source_address=(address, 0))

    def ask(
        self,
        method: str = "GET",
        target: str = "/",
        *,
        token: str | None = None,
        headers: Headers = (),
        body: bytes | None = None,
        chunks: Iterable[bytes] | None = None,
        on: socket.socket | None = None,
    ) -> "GatewayAnswer":
        """One request, on a connection of its own if none is given."""
        if on is None:
            with closing(self.connect()) as connection:
                return self.ask(method, target, token=token, headers=headers, body=body, chunks=chunks, on=connection)
        probe, head = self.head(method, target, token=token, headers=headers, body=body, is_chunked=chunks is not None)
        on.sendall(head)
        # One that refuses may hang up before it has all.
        with suppress(BrokenPipeError, ConnectionResetError):
            on.sendall(body or b"")
            for chunk in chunks or ():
                on.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            if chunks is not None:
                on.sendall(b"0\r\n\r\n")
        return self.answer(on, probe, method)

    def head(
        self,
        method: str,
        target: str,
        *,
        token: str | None,
        headers: Headers = (),
        body: bytes | None = None,
        is_chunked: bool = False,
    ) -> tuple[str, bytes]:
        probe = f"{os.getpid()}-{next(_probes)}"
        sent = [("X-Probe", probe), *headers]
        if not any(name == "Host" for name, _ in sent):
            sent.insert(0, ("Host", f"127.0.0.1:{self.port}"))
        if token is not None:
            sent.append(("Authorization", f"Bearer {token}"))
        if is_chunked:
            sent.append(("Transfer-Encoding", "chunked"))
        elif body is not None:
            sent.append(("Content-Length", str(len(body))))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent), "", ""]
        return probe, "\r\n".join(lines).encode("latin-1")

    def answer(self, connection: socket.socket, probe: str, method: str) -> "GatewayAnswer":
        with http.client.HTTPResponse(connection, method=method) as response:
            response.begin()
            return GatewayAnswer(
                response.status, response.getheaders(), response.read(), self._application.seen.get(probe)
            )


@dataclass(frozen=True)
class GatewayAnswer(Answer):
    seen: Seen | None
    """What reached the application."""


@contextmanager
def running(
    recipe: Recipe,
    folder: Path,
    watchword: int,
    application: Application,
    requires: str = "",
    change: Callable[[str], str] = str,
) -> Iterator[Gateway]:
    """The gateway on its page's file, in a folder of its own, started by its page's command."""
    program = recipe.program()
    folder.mkdir()
    port = free_port()
    meant = {LISTENS: str(port), WATCHWORD: str(watchword), APPLICATION: str(application.port)}
    text = recipe.block(recipe.kind)
    assert set(re.findall(r"\b[0-9]{4}\b", text)) == set(meant)
    # In one pass: a free port may have another's digits.
    text = re.sub(r"\b(8000|8080|9000)\b", lambda found: meant[found[0]], text)
    if requires:
        text = requiring(text, requires)
    (folder / recipe.file).write_text(change(text))
    environment = surroundings(folder, PATH=f"{program.parent}:{os.environ['PATH']}")
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {recipe.block('bash')}"],
            cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    gateway = Gateway(recipe, port, application)
    try:
        until(lambda: process.poll() is not None or _listens(gateway), f"{recipe.name} listens")
        assert process.poll() is None, log.read_text()
        yield gateway
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def requiring(text: str, what: str) -> str:
    """The file with a requirement in the address that the gateway asks at, as the pages say."""
    made, count = re.subn(
        r"/auth(?:\?([\w.=]*))?(?=[;\s])", lambda found: "/auth?" + "&".join(filter(None, [found[1], what])), text
    )
    assert count == 1
    return made


def at_resource(text: str, name: str) -> str:
    """The file with the address of a resource, as the page says."""
    made, count = re.subn(r"/auth(?=[?;\s])", f"/resources/{name}/auth", text)
    assert count == 1
    return made


def appending(text: str) -> str:
    """The file, changed so that the gateway sends the client's query, and Envoy its path too."""
    return text.replace("/auth?\n", "/auth\n").replace("path_override:", "path_prefix:").replace("/auth?w", "/auth #w")


def _listens(gateway: Gateway) -> bool:
    """It knows its way: Traefik answers 404 until it has read its file."""
    with suppress(OSError, http.client.HTTPException):
        return gateway.ask().status != 404
    return False
