"""Both clients behind one face, so that one suite holds both to the same behaviour."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from watchword.client import AsyncClient, Client

KINDS = ("sync", "async")
_END = object()


class Blocking:
    """An `AsyncClient`, one of its namespaces or a list, with synchronous manners: the test waits for each answer."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return Blocking(self._runner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            return Blocking(self._runner, made) if hasattr(made, "__aiter__") else self._runner.run(made)

        return call

    def __repr__(self) -> str:
        return repr(self._inner)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await anext(self._inner, _END)

        if (item := self._runner.run(following())) is _END:
            raise StopIteration
        return item


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
