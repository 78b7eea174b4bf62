"""Operations whose cost must not grow with the store, from PostgreSQL's plans, including those inside functions."""

import asyncio
import fcntl
import json
import os
import pickle
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bench.fill import fill, filled_actor, filled_id
from tests.contract.harness import ADMIN, SYSTEM, key, record
from tests.support.postgres import Cluster, Home, own_cluster
from watchword.accounts.store import GET_ACCOUNT
from watchword.authority.policies import root_policy
from watchword.basics.errors import Fault
from watchword.database.postgres.connections import READING_MANY_TOKENS, Connection
from watchword.database.postgres.dialect import DIALECT
from watchword.database.postgres.hosts import connect
from watchword.database.transaction import SetWork, Work, ignore
from watchword.database.urls import PostgresUrl
from watchword.journal.events import EventSearch
from watchword.journal.store import events_sql
from watchword.setting_values import database as read_address
from watchword.stores import open_store
from watchword.stores import postgres_verify as verify_batcher
from watchword.stores.postgres import PostgresStore
from watchword.tokens.counts import Use
from watchword.tokens.filters import Condition, Field, Filter, Search
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.rules import Issue
from watchword.tokens.search_store import search_sql
from watchword.tokens.store import GET

FEW = 1_000
SIZES = (100_000, pytest.param(1_000_000, marks=pytest.mark.soak))
ACTORS = 20
NOW = 1_767_225_600_000
# Tables of a few rows; scanning them reads one page.
SMALL = {"state", "keys", "next_key"}
BY_BEARER = replace(SYSTEM, bearer_id=filled_id(4))
EXPIRED = "urn:li:corpuser:expired"

Ask = Callable[[Connection], Awaitable[Any]]


@dataclass
class Cost:
    scanned: set[str]
    """Tables that were read from end to end."""
    sorted: int
    pages: int
    indexes: set[str]
    statements: int
    """With those inside functions."""


def plan_of(message: str) -> Any:
    return json.loads(message[message.index("{") :])["Plan"]


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def cost_of(plans: list[Any]) -> Cost:
    every = [node for plan in plans for node in nodes(plan)]
    return Cost(
        scanned={node["Relation Name"] for node in every if node["Node Type"] == "Seq Scan"} - SMALL,
        sorted=sum(node["Actual Rows"] > 1 for node in every if "Sort" in node["Node Type"]),
        # Pages read within a function count twice, in every store.
        pages=sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans),
        indexes={node["Index Name"] for node in every if "Index Name" in node},
        statements=len(plans),
    )


@asynccontextmanager
async def connect_explained(place: PostgresUrl, session: Any) -> Any:
    """A connection with the store's settings that logs the plan of every statement."""
    connection: Any = await connect(place, session)
    told: list[str] = []
    connection.add_log_listener(lambda _, message: told.append(message.message))
    try:
        for setting in ("log_min_duration = 0", "log_nested_statements = on", "log_analyze = on", "log_format = json"):
            if setting.startswith("log_min"):
                await connection.execute(
                    "LOAD 'auto_explain'; SET client_min_messages = log; SET statement_timeout = 0"
                )
            await connection.execute(f"SET auto_explain.{setting}")
        await connection.execute("SET auto_explain.log_buffers = on")
        yield connection, told
    finally:
        connection.terminate()
        await asyncio.sleep(0)


class OneConnection:
    dialect = DIALECT

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.row = self.confirmed_row = connection.fetchrow
        self.fetch = connection.fetch

    async def write(self, work: Work[Any]) -> Any:
        await self.connection.execute("BEGIN")
        result = await work(self.connection)
        await self.connection.execute("COMMIT")
        return result

    async def write_together(self, work: SetWork[Any, Any], item: Any, undo: Any = None) -> Any:
        (outcome,) = await self.write(lambda tx: work(tx, [item]))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def store_on(connection: Connection) -> PostgresStore:
    store = PostgresStore.__new__(PostgresStore)  # without a pool
    store._db = OneConnection(connection)  # type: ignore[assignment]
    return store


async def add(connection: Connection, number: int, actor: str = filled_actor(3, ACTORS), most: int = 10**6) -> None:
    made = record(10**9 + number + (0 if actor != EXPIRED else 10**6), actor)
    retry = IdempotencyRecord("urn:a:retry", f"digest {made.id}", "kid", made.id, NOW, None)
    with suppress(Fault):  # one actor is at its limit
        await store_on(connection).add_token(BY_BEARER, made, Issue(key(1).kid, most, retry))


def statements(number: int) -> dict[str, tuple[Any, Ask]]:
    """The statements of the store by name, with the session settings of their connection."""
    actor = filled_actor(3, ACTORS)
    own = translate(Filter(Field.ACTOR_URN, Condition.EQUAL, (actor,)), own=(Field.ACTOR_URN, actor))
    by = translate(Filter(Field.OWNER_URN, Condition.EQUAL, (actor,)), own=(Field.OWNER_URN, actor))
    first = translate()
    log, bound = events_sql(EventSearch(count=20), DIALECT)
    of_one, bound_to_one = events_sql(EventSearch(targets=(filled_id(9),), count=20), DIALECT)
    ids = [filled_id(n) for n in range(0, 64, 2)]
    version = "SELECT policy_version FROM state"
    plain = None
    return {
        "verify": (READING_MANY_TOKENS, lambda c: c.fetch(verify_batcher.STATEMENT, ids)),
        "verify, confirmed": (READING_MANY_TOKENS, lambda c: c.fetch(verify_batcher.CONFIRMED_STATEMENT, ids)),
        "own list": (plain, lambda c: c.fetch(own[0], *own[1])),
        "list by owner": (plain, lambda c: c.fetch(by[0], *by[1])),
        "first page of all": (plain, lambda c: c.fetch(first[0], *first[1])),
        "revoke": (plain, lambda c: store_on(c).revoke_token(BY_BEARER, filled_id(number), None)),
        "create": (plain, lambda c: add(c, number)),
        "create of one with many expired": (plain, lambda c: add(c, number, EXPIRED, 5)),
        "revoke of a family": (plain, lambda c: store_on(c).revoke_token(SYSTEM, f"old {number}", None)),
        "first use": (plain, lambda c: store_on(c).note_first_use(SYSTEM, f"new {number + 1}")),
        "purge of ten": (plain, lambda c: store_on(c).purge_tokens(10**9, 10)),
        "retry": (plain, lambda c: store_on(c).get_idempotency_record("urn:a:retry", f"digest {number}")),
        "account": (plain, lambda c: c.fetchrow(GET_ACCOUNT, "urn:a:1")),
        "get": (plain, lambda c: c.fetchrow(GET, filled_id(7))),
        "standing": (plain, lambda c: store_on(c).actor_snapshot(actor)),
        "uses": (plain, lambda c: store_on(c).record_uses(dict.fromkeys(ids, Use(NOW, 1, "n")))),
        "newest events": (plain, lambda c: c.fetch(log, *bound)),
        "events of a token": (plain, lambda c: c.fetch(of_one, *bound_to_one)),
        "policy version": (plain, lambda c: c.fetchrow(version)),
    }


def translate(*filters: Filter, **fields: Any) -> tuple[str, list[Any], bool]:
    return search_sql(Search(filters=filters, **fields), DIALECT)


NAMES = sorted(statements(0))


def measure(cluster: Cluster, folder: Any, size: int) -> dict[str, Cost]:
    home = Home(cluster, folder)
    address = read_address(home.url)
    assert isinstance(address, PostgresUrl)
    place = replace(address, schema=home.schema, timeout=60.0)
    fill(place, size, now=NOW, actors=ACTORS)
    home.look("INSERT INTO actors (urn, status) SELECT 'urn:a:' || n, 'SUSPENDED' FROM generate_series(1, 5000) AS n")
    home.look("INSERT INTO groups (urn, name) SELECT 'urn:g:' || n, 'g' FROM generate_series(1, 50) AS n")
    home.look(
        "INSERT INTO group_members (actor_urn, group_urn)"
        " SELECT 'urn:u:' || n, 'urn:g:' || (n % 50 + 1) FROM generate_series(1, 5000) AS n"
    )
    # Counting these tokens by trigger takes minutes; add their total directly.
    home.look("ALTER TABLE tokens DISABLE TRIGGER tokens_counted")
    home.look("INSERT INTO token_totals (kind, urn, slot, total) VALUES ('actor', %s, 0, %s)", EXPIRED, size // 10)
    home.look(
        "INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at)"
        f" SELECT 'expired ' || n, 'PERSONAL', 'x', %s, 'urn:o', 0, n FROM generate_series(1, {size // 10}) AS n",
        EXPIRED,
    )
    # Families of three: an old token, its unused successor and a derived token. Their totals are not needed.
    home.look(
        "INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at, parent, root, replaces,"
        " replaced_by, grace, full_end) SELECT kind || n, 'PERSONAL', 'x', 'urn:f', 'urn:f', 0, NULL,"
        " CASE kind WHEN 'child ' THEN 'old ' || n END, CASE WHEN kind <> 'old ' THEN 'old ' || n END,"
        " CASE kind WHEN 'new ' THEN 'old ' || n END, CASE kind WHEN 'old ' THEN 'new ' || n END,"
        " CASE kind WHEN 'new ' THEN 1 END, NULL"
        f" FROM generate_series(1, {size // 5}) AS n, unnest(ARRAY['old ', 'new ', 'child ']) AS kind"
    )
    home.look("ALTER TABLE tokens ENABLE TRIGGER tokens_counted")
    home.look(
        "INSERT INTO retries SELECT 'urn:a:retry', 'digest ' || n, 'kid', n::text, 2^50, NULL"
        f" FROM generate_series(1, {size // 5}) AS n"
    )
    home.look("INSERT INTO service_accounts SELECT 'urn:a:' || n, 'a', NULL, 0, 'x' FROM generate_series(1, 5000) AS n")
    home.look("VACUUM ANALYZE")

    async def measure_all() -> dict[str, Cost]:
        store = await open_store(place, lambda: NOW, ignore)
        await store.settle_keys(b"salt", key(1), key(2))
        await store.apply_start(root_policy(ADMIN), ())
        await store.close()
        costs = {}
        for name in NAMES:
            session = statements(0)[name][0]
            async with connect_explained(place, session or {}) as (connection, told):
                for number in (100, 102, 104):  # repeat, to warm the caches
                    told.clear()
                    await statements(number)[name][1](connection)
                costs[name] = cost_of([plan_of(message) for message in told if '"Plan"' in message])
        return costs

    return asyncio.run(measure_all())


Costs = tuple[dict[str, Cost], dict[str, Cost]]
"""On a small store and on a large one."""


@pytest.fixture(scope="module", params=SIZES)
def costs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Costs:
    """The first xdist worker measures; the others read its results."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "costs.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        said = shared / f"costs-{request.param}.pickle"
        if not said.exists():
            folder = tmp_path_factory.mktemp("costs")
            with own_cluster(folder) as cluster:
                said.write_bytes(pickle.dumps(tuple(measure(cluster, folder, size) for size in (FEW, request.param))))
        found: Costs = pickle.loads(said.read_bytes())
        return found


@pytest.mark.parametrize("name", NAMES)
def test_no_table_is_scanned(costs: Costs, name: str) -> None:
    assert costs[1][name].scanned == set()


@pytest.mark.parametrize("name", NAMES)
def test_pages_read_grow_only_with_index_depth(costs: Costs, name: str) -> None:
    few, many = costs[0][name], costs[1][name]
    assert few.pages > 0
    assert many.pages <= 2 * few.pages + 10


@pytest.mark.parametrize(
    ("name", "index"),
    [("own list", "tokens_actor"), ("list by owner", "tokens_owner"), ("first page of all", "tokens_all")],
)
def test_list_uses_an_ordered_index(costs: Costs, name: str, index: str) -> None:
    assert index in costs[1][name].indexes


@pytest.mark.parametrize("name", ["own list", "list by owner", "first page of all"])
def test_total_of_a_list_is_read_once(costs: Costs, name: str) -> None:
    assert costs[1][name].statements == 2


def test_cost_detects_a_sequential_scan(costs: Costs) -> None:
    plan = {"Node Type": "Seq Scan", "Relation Name": "tokens", "Shared Hit Blocks": 9, "Shared Read Blocks": 0}
    assert cost_of([plan]).scanned == {"tokens"}
