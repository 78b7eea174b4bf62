"""The context of a GraphQL request: what its resolvers use, and the limits on its searches."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.basics.errors import invalid
from watchword.basics.names import MAX_URN, ShownActor, check_text
from watchword.basics.paging import SEARCH_SECONDS, check_page, check_shown
from watchword.basics.times import Clock
from watchword.http.graphql.documents import NOTHING, Reads
from watchword.http.graphql.shapes import Json, Shape
from watchword.http.processor_budget import Meter

MAX_NAMES = 10_000
"""Actors of one list whose names are looked up. The others have none."""
MAX_FOLLOWED = 100
"""Lookups of `relationships` per request. They run one after the other."""


class Authorizes(Protocol):
    @property
    def authorize(self) -> Callable[..., Awaitable[Grant]]: ...


class AuthorizesViews(Protocol):
    @property
    def authorize_view(self) -> Callable[[Caller], Awaitable[Grant]]: ...


class People(Protocol):
    async def names_of(self, actors: Collection[str]) -> Mapping[str, str]: ...

    def authorize_any(self, caller: Caller) -> Awaitable[Grant]: ...

    async def shown_actors(self, grant: Grant, actors: Collection[str]) -> Mapping[str, ShownActor]: ...


S = TypeVar("S")
A = TypeVar("A", bound=Authorizes)
V = TypeVar("V", bound=AuthorizesViews)


class RequestServices(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def actors(self) -> People: ...

    def of(self, service: type[S]) -> S:
        """The service of this class."""


@dataclass(slots=True)
class Context:
    caller: Caller
    services: RequestServices
    meter: Meter
    key: str | None = None
    """The Idempotency-Key of the request, which creates one token."""
    created: list[str] = field(default_factory=list)
    """Ids of created tokens. They are withdrawn if the client disconnects and sent no Idempotency-Key."""
    searching: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Allows one search at a time."""
    _began: float = field(default_factory=time.monotonic)
    max_row_fields: int = 1
    """The most fields of a row in a list of this document."""
    reads: Reads = NOTHING
    """By this document."""
    efforts: list[int] = field(default_factory=lambda: [0, 0])
    """Of searches of all tokens, and of those of one actor."""
    _shown: int = 0
    _followed: int = 0

    def of(self, service: type[S]) -> S:
        return self.services.of(service)

    async def authorized(self, kind: type[A], *any_of: Privilege) -> tuple[A, Grant]:
        """The service, with what the caller may do there."""
        service = self.of(kind)
        return service, await service.authorize(self.caller, *any_of)

    async def viewing(self, kind: type[V]) -> tuple[V, Grant]:
        """The same to read policies or groups."""
        service = self.of(kind)
        return service, await service.authorize_view(self.caller)

    async def names(self, actors: Iterable[str]) -> Mapping[str, str]:
        """The display names of actors in a result, with one query; with none if the document does not select them."""
        if not self.reads.names:
            return {}
        return await self.services.actors.names_of(list(islice(dict.fromkeys(actors), MAX_NAMES)))

    async def shown(self, shape: Shape, *records: Any) -> list[Json]:
        """The records as JSON, with the names of their actors."""
        names = await self.names(shape.actors(*records))
        return [shape(record, names) for record in records]

    async def users(self, actors: Iterable[str]) -> Mapping[str, ShownActor | str]:
        """The same for `user_json`: with all that the caller may see if the document selects more than names."""
        if not self.reads.profiles:
            return await self.names(actors)
        urns = list(islice(dict.fromkeys(actors), MAX_NAMES))
        known = self.services.actors
        return await known.shown_actors(await known.authorize_any(self.caller), urns)

    @property
    def now(self) -> int:
        return self.services.clock()

    def time_left(self) -> float:
        return max(0.0, self._began + SEARCH_SECONDS - time.monotonic())

    def follow(self) -> None:
        """Count a lookup of `relationships`."""
        self._followed += 1
        if self._followed > MAX_FOLLOWED:
            raise invalid(
                "relationships", f"A request may follow the relationships of at most {MAX_FOLLOWED} rows. List fewer."
            )

    def show(self, rows: int) -> None:
        """Count the rows of a list before they are returned."""
        self._shown += rows * self.max_row_fields
        check_shown(self._shown)


class Info(Protocol):
    """The `info` argument of a resolver, from graphql-core or from the fast path."""

    @property
    def context(self) -> Context: ...


def page_of(input: Json) -> dict[str, int]:  # noqa: A002 - the name in the schema
    """`start` and `count`; null means the default."""
    return check_page(input.get("start"), input.get("count"))


def query_of(input: Json) -> str:  # noqa: A002 - the name in the schema
    """The text to look for. Clients of DataHub send `*` for everything."""
    query = check_text(input.get("query") or "", "query", MAX_URN)
    return "" if query == "*" else query
