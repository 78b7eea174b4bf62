"""The bare answers everything is measured against: applications that do nothing but answer, on granian with the flags
of Watchword's own server. The path says how many bytes; none is a 204.
"""

from typing import Any

from granian.constants import Interfaces

from watchword.app.server import _server
from watchword.settings import Settings

BODY = b"x" * 1_048_576


async def bare(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    weight = int(scope["path"][1:] or 0)
    if scope["method"] == "POST":
        await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(weight).encode())]
    headers = headers if weight else headers[:1]
    await send({"type": "http.response.start", "status": 200 if weight else 204, "headers": headers})
    await send({"type": "http.response.body", "body": BODY[:weight]})


async def bare_rsgi(scope: Any, protocol: Any) -> None:
    """The same by granian's own interface: the least this server can do."""
    weight = int(scope.path[1:] or 0)
    if scope.method == "POST":
        await protocol()
    headers = [("content-type", "application/json")]
    if weight:
        protocol.response_bytes(200, headers, BODY[:weight])
    else:
        protocol.response_empty(204, headers)


def serve_app(app: Any, settings: Settings, interface: Interfaces) -> None:
    """Any application, as Watchword would be served."""
    _server(settings, interface=interface).serve(target_loader=lambda: app, wrap_loader=False)
