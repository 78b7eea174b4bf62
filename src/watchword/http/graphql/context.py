"""The context of a GraphQL request: what its resolvers use, and the limits on its searches."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Protocol, TypeVar

from watchword.domain.actors import Caller, Grant
from watchword.domain.counts import DayCount
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.filters import DEFAULT_COUNT, SEARCH_SECONDS, Search, check_effort, check_page, check_shown
from watchword.domain.idempotency import HEADER, IdempotentRequest
from watchword.domain.names import MAX_URN, ShownActor, check_text
from watchword.domain.policies import Privilege
from watchword.domain.tokens import TokenRecord
from watchword.http.graphql.documents import NOTHING, Reads
from watchword.http.processor_budget import Meter
from watchword.service import AllServices
from watchword.service.policies import Policies
from watchword.service.tokens import ACCOUNTS, MANAGE_ALL

MAX_NAMES = 10_000
"""Actors of one list whose names are looked up. The others have none."""
MAX_FOLLOWED = 100
"""Lookups of `relationships` per request. They run one after the other."""

Json = dict[str, Any]


class Authorizes(Protocol):
    @property
    def authorize(self) -> Callable[..., Awaitable[Grant]]: ...


S = TypeVar("S", bound=Authorizes)


@dataclass(slots=True)
class Context:
    caller: Caller
    services: AllServices
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
    _shown: int = 0
    _effort: int = 0
    _pinned_effort: int = 0
    _followed: int = 0

    def idempotent_request(self, operation: str, content: Json) -> IdempotentRequest | None:
        """For a new token, if the request has a key. A key creates one token."""
        key, self.key = self.key, "" if self.key is not None else None
        if key == "":
            raise Fault(Reason.INVALID_HEADER, f"A request with an {HEADER} may create only one token.", field=HEADER)
        if key is None:
            return None
        return self.services.core.tokens.idempotent(self.caller, key, {"operation": operation, **content})

    async def pace_write(self, grant: Grant) -> None:
        """Before a token is created or changed: wait if the caller wrote many. Callers who may write more than their
        own tokens do not wait.
        """
        self.meter.exempt_write()
        if grant.may(MANAGE_ALL) or grant.may(ACCOUNTS):
            return
        wait = self.meter.charge_write()
        if wait:
            await asyncio.sleep(wait)

    async def authorized(self, service: S, *any_of: Privilege) -> tuple[S, Grant]:
        """The service, with what the caller may do there."""
        return service, await service.authorize(self.caller, *any_of)

    async def authorize_policies(self) -> tuple[Policies, Grant]:
        policies = self.services.core.policies
        return policies, await policies.authorize(self.caller)

    async def view_policies(self) -> tuple[Policies, Grant]:
        policies = self.services.core.policies
        return policies, await policies.authorize_view(self.caller)

    async def names(self, actors: Iterable[str]) -> Mapping[str, str]:
        """The display names of actors in a result, with one query; with none if the document does not select them."""
        if not self.reads.names:
            return {}
        return await self.services.core.policies.names_of(list(islice(dict.fromkeys(actors), MAX_NAMES)))

    async def users(self, actors: Iterable[str]) -> Mapping[str, ShownActor | str]:
        """The same for `user_json`: with all that the caller may see if the document selects more than names."""
        if not self.reads.profiles:
            return await self.names(actors)
        urns = list(islice(dict.fromkeys(actors), MAX_NAMES))
        policies = self.services.core.policies
        return await policies.shown_actors(await policies.authorize_any(self.caller), urns)

    async def with_names(self, records: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
        """The tokens with the names of their actors and owners, their uses and their networks, as far as the document
        selects them: one query for each of these. The records may be projections.
        """
        if not records:
            return records
        fields, ids, tokens = records[0]._fields, [record.id for record in records], self.services.core.tokens
        if self.reads.uses and "uses" in fields:
            uses = await tokens.uses_of(ids)
            records = tuple(record._replace(uses=uses.get(record.id)) for record in records)
        if self.reads.networks and "networks" in fields:
            networks = await tokens.networks_of(ids)
            records = tuple(record._replace(networks=networks.get(record.id)) for record in records)
        if self.reads.profiles and "owner" in fields:
            users: Mapping[str, Any] = await self.users(record.owner_urn for record in records)
            records = tuple(record._replace(owner=users.get(record.owner_urn)) for record in records)
        if not self.reads.names:
            return records
        pairs = [(f"{role}_name", f"{role}_urn") for role in ("actor", "owner") if f"{role}_name" in fields]
        names = await self.names(getattr(record, urn) for record in records for _, urn in pairs)
        if not names:
            return records
        named: list[Any] = [{name: names.get(getattr(record, urn)) for name, urn in pairs} for record in records]
        return tuple(record._replace(**found) for record, found in zip(records, named, strict=True))

    async def with_name(self, record: TokenRecord) -> TokenRecord:
        (named,) = await self.with_names((record,))
        return named

    @property
    def now(self) -> int:
        return self.services.core.store.clock()

    def time_left(self) -> float:
        return max(0.0, self._began + SEARCH_SECONDS - time.monotonic())

    def search(self, search: Search) -> None:
        """Charge a search before it runs."""
        if search.pinned is None:
            self._effort += search.effort
        else:
            self._pinned_effort += search.effort
        check_effort(self._effort, self._pinned_effort)
        if self._is_charged(search):
            self.meter.check()

    def searched(self, search: Search, seconds: float) -> None:
        """Charge the time that the search took."""
        if self._is_charged(search):
            self.meter.charge(seconds)

    def _is_charged(self, search: Search) -> bool:
        """Only searches of the caller's own tokens, which need the least privilege."""
        return search.pinned == self.caller.actor and search.effort > 0

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
    start, count = input.get("start"), input.get("count")
    start, count = 0 if start is None else start, DEFAULT_COUNT if count is None else count
    check_page(start, count)
    return {"start": start, "count": count}


def query_of(input: Json) -> str:  # noqa: A002 - the name in the schema
    """The text to look for. Clients of DataHub send `*` for everything."""
    query = check_text(input.get("query") or "", "query", MAX_URN)
    return "" if query == "*" else query


def record_json(record: object, names: str, **more: Any) -> Json:
    """The named attributes of a record under their names in the schema, and more fields."""
    return {field: getattr(record, name) for field, name in _fields(names)} | more


def change_json(change: Any, key: str, shown: Callable[[Any], Json]) -> Json:
    """A change of a declared object, which has this key: from one state to another, either of which may be None."""
    before, after = (None if state is None else shown(state) for state in (change.before, change.after))
    return {"change": change.kind.value, key: getattr(change, key), "before": before, "after": after}


def days_json(days: Iterable[DayCount]) -> list[Json]:
    return [{"day": one.day, "count": one.count} for one in days]


@cache
def _fields(names: str) -> list[tuple[str, str]]:
    return [(camel_case(name), name) for name in names.split()]


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
