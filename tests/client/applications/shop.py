"""A FastAPI application with one part for each configuration of the middleware."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, WebSocket

from watchword.client.middleware import VerifyTokens

SERVER, ABSENT, SILENT, STRANGER = (os.environ[name] for name in ("SERVER", "ABSENT", "SILENT", "STRANGER"))


@asynccontextmanager
async def opening(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"name": "corner shop"}


def part(**how: Any) -> FastAPI:
    made = FastAPI(lifespan=opening)
    made.add_middleware(VerifyTokens, **how)

    @made.get("/orders")
    def orders(request: Request) -> dict[str, Any]:
        who = request.state.watchword
        told = {"urn": who.urn, "token": who.token_id, "scopes": who.scopes, "shop": request.state.name}
        return {**told, "headers": request.headers.items()}

    @made.get("/health")
    def health(request: Request) -> dict[str, Any]:
        return {"known": hasattr(request.state, "watchword"), "headers": request.headers.items()}

    @made.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(socket.state.watchword.urn)
        await socket.close()

    return made


PARTS = {
    "": part(server=SERVER, public=["/health"]),
    "/reading": part(server=SERVER, require=["orders:read", "shop"]),
    "/ruling": part(server=SERVER, privileges=["MANAGE_POLICIES"], audience=["https://shop.example.org"]),
    "/resource": part(server=SERVER, resource="shop"),
    "/remembering": part(server=SERVER, remember=60),
    "/absent": part(server=ABSENT),
    "/silent": part(server=SILENT, timeout=0.2),
    "/stranger": part(server=STRANGER),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Separate parts: mounted in one another they would be checked twice."""
    path = scope.get("path", "")
    prefix = next((prefix for prefix in PARTS if prefix and path.startswith(f"{prefix}/")), "")
    await PARTS[prefix]({**scope, "path": path.removeprefix(prefix)}, receive, send)
