"""The bare answer everything is measured against: an ASGI application that does nothing but answer.

The path says how many bytes; none is a 204.
"""

from pathlib import Path
from typing import Any

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


def load_bare(settings: object, run_folder: Path) -> Any:
    """What Watchword's own server loads in place of Watchword."""
    (run_folder / "ready-bare").touch()
    return bare
