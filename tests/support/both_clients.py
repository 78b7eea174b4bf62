"""Both clients behind one face, so that one suite holds both to the same behaviour."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from watchword.client import AsyncClient, Client

KINDS = ("sync", "async")


class Blocking:
    """An `AsyncClient` with the synchronous client's manners: the test waits for each answer."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner = runner
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            return self._each(made) if hasattr(made, "__aiter__") else self._runner.run(made)

        return call

    def __repr__(self) -> str:
        return repr(self._client)

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self._runner.run(following())) is not end:
            yield item


class Clients:
    """Makes clients of one kind and closes them at the end."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._runner = asyncio.Runner()
        self._made: list[Client] = []

    def __call__(self, url: str, **how: Any) -> Client:
        if self._kind == "sync":
            made = Client(url, **how)
        else:
            made = cast("Client", Blocking(self._runner, AsyncClient(url, **how)))
        self._made.append(made)
        return made

    def close(self) -> None:
        for client in self._made:
            client.close()
        self._runner.close()
