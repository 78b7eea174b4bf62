"""The context of a GraphQL request: what its resolvers use, the limits on its searches, and its processor budget."""

import asyncio
import gc
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
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
from watchword.service import AllServices
from watchword.service.policies import Policies
from watchword.service.tokens import ACCOUNTS, MANAGE_ALL

ACTOR_SHARE = 0.05
"""The default share of a processor. All actors together have four times as much, at most MAX_SHARED."""
SHARED_FACTOR, MAX_SHARED = 4, 0.8
ACTOR_BURST, WORKER_BURST = 1.0, 2.5
"""The capacity of the buckets, in seconds."""
WRITE_SECONDS = 0.0005
"""What a write of a token is charged, about what it costs: 2,000 at once, and 100 a second after that."""
MAX_WRITE_WAIT = 2.0
DAILY_WRITES = 50_000
"""Writes of tokens that a worker allows an actor in a day, half of them at once."""
MAX_ACTORS = 4_096
"""Actors remembered. A forgotten actor starts with a full bucket; the shared bucket is not affected."""
MAX_WAIT, DAY_SECONDS = 60, 86_400
MAX_NAMES = 10_000
"""Actors of one list whose names are looked up. The others have none."""
MAX_FOLLOWED = 100
"""Lookups of `relationships` per request. They run one after the other."""

Json = dict[str, Any]


class Authorizes(Protocol):
    @property
    def authorize(self) -> Callable[..., Awaitable[Grant]]: ...


S = TypeVar("S", bound=Authorizes)


class _Bucket:
    __slots__ = ("_at", "_burst", "_level", "_share")

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share, self._burst = share, burst
        self._level, self._at = burst, now

    def spend(self, seconds: float, now: float) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._share) - seconds
        self._at = now

    def fill(self, now: float) -> float:
        """1 at most, below 0 in debt."""
        self.spend(0.0, now)
        return self._level / self._burst


class ProcessorBudget:
    """Limits what one actor may cost a worker beyond ordinary requests. A share of 0 disables it.

    Charged in seconds of processor time: parsing, validating and compiling documents that the worker has not cached,
    and execution by graphql-core, such as introspection, which all run on the event loop that verifies tokens; and
    searches of the caller's own tokens, which take a thread. Cached documents and the first page of a caller's own
    tokens are free.

    Each actor has a token bucket that fills at a share of a processor, and all actors of a worker share another one.
    Work starts while a bucket is not empty and is charged in full, so a bucket can go into debt. As the shared bucket
    runs out, it stops the actors first that used most of their own.

    Writes of tokens have buckets of their own, and none for all actors: writes of many actors share a commit.
    """

    def __init__(self, share: float = ACTOR_SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._share, self._shared = share, min(MAX_SHARED, SHARED_FACTOR * share)
        self._everyone = _Bucket(self._shared, WORKER_BURST, clock())

        def full(_actor: str) -> _Bucket:
            return _Bucket(share, ACTOR_BURST, clock())

        self._actors, self._writers = lru_cache(MAX_ACTORS)(full), lru_cache(MAX_ACTORS)(full)

        def full_day(_actor: str) -> _Bucket:
            return _Bucket(DAILY_WRITES / 2 / DAY_SECONDS, DAILY_WRITES / 2, clock())

        self._days = lru_cache(MAX_ACTORS)(full_day)

    def __len__(self) -> int:
        return self._actors.cache_info().currsize

    def check(self, actor: str) -> None:
        bucket, now = self._actors(actor), self._clock()
        own = bucket.fill(now)
        # The shared bucket limits nothing until half of it is used.
        needed = max(0.0, 1.0 - 2.0 * self._everyone.fill(now))
        if own > needed or not self._share:
            return
        own_rate, shared_rate = self._share / ACTOR_BURST, 2.0 * self._shared / WORKER_BURST
        wait = max(-own / own_rate, (needed - own) / (own_rate + shared_rate))
        seconds = min(MAX_WAIT, math.floor(wait) + 1)
        raise Fault(
            Reason.PROCESSOR_BUDGET_USED,
            "Your processor time for new GraphQL documents, introspection and searches of your own tokens is used up. "
            f"Try again in {seconds} s. "
            "Keep documents the same and send values as variables: a known document costs nothing to parse.",
            retryAfter=seconds,
        )

    def charge(self, actor: str, seconds: float) -> None:
        bucket, now = self._actors(actor), self._clock()
        bucket.spend(seconds, now)
        self._everyone.spend(seconds, now)

    def charge_write(self, actor: str) -> float:
        """Returns how many seconds the write must wait. Waiting, and not rejection, so that a job that creates many
        tokens is slower but does not fail.
        """
        if not self._share:
            return 0.0
        bucket, day, now = self._writers(actor), self._days(actor), self._clock()
        if day.fill(now) * DAILY_WRITES / 2 < 1:
            seconds = math.ceil(DAY_SECONDS * 2 / DAILY_WRITES)
            raise Fault(
                Reason.TOO_MANY_CHANGES,
                f"An actor may create, derive, rotate and change {DAILY_WRITES:,} tokens a day, half of them at once. "
                f"Try again in {seconds} s.",
                retryAfter=seconds,
            )
        wait = max(0.0, -bucket.fill(now) * ACTOR_BURST / self._share)
        if wait > MAX_WRITE_WAIT:
            raise Fault(
                Reason.PROCESSOR_BUDGET_USED,
                "You create or change more tokens at the same time than one caller may. "
                f"Try again in {math.ceil(wait)} s, and wait for an answer before you send more.",
                retryAfter=math.ceil(wait),
            )
        bucket.spend(WRITE_SECONDS, now)
        day.spend(1, now)
        return wait


class Meter:
    """Charges the actor of one request for the code within it. It checks the budget once per request."""

    __slots__ = ("_actor", "_began", "_budget", "_checked", "_collects", "has_rejected")

    def __init__(self, budget: ProcessorBudget, actor: str) -> None:
        self._budget, self._actor = budget, actor
        self._checked = False
        self.has_rejected = False

    def __enter__(self) -> None:
        if not self._checked:
            self.check()
            self._checked = True
        # The garbage collector would traverse all cached documents several times: two thirds of the time.
        self._collects = gc.isenabled()
        gc.disable()
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.charge(time.thread_time() - self._began)
        if self._collects:
            gc.enable()

    def check(self) -> None:
        try:
            self._budget.check(self._actor)
        except Fault:
            self.has_rejected = True
            raise

    def charge(self, seconds: float) -> None:
        self._budget.charge(self._actor, seconds)

    def charge_write(self) -> float:
        try:
            return self._budget.charge_write(self._actor)
        except Fault:
            self.has_rejected = True
            raise


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
