"""The read of a verification in PostgreSQL, of one token and of a sealed batch, by either driver; and a store for it.

The tables and words are the store's own, without what a verification does not touch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import psycopg

from tests.support.postgres import Cluster

TABLES = """
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
CREATE TABLE state (one integer PRIMARY KEY, policy_version bigint NOT NULL);
INSERT INTO state VALUES (1, 7);
CREATE TABLE tokens (
    id text COLLATE "C" PRIMARY KEY, type text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    actor_urn text COLLATE "C" NOT NULL, owner_urn text COLLATE "C" NOT NULL, created_at bigint NOT NULL,
    expires_at bigint, last_used_at bigint, revoked_at bigint
) WITH (fillfactor = 90);
CREATE TABLE group_members (
    actor_urn text COLLATE "C" NOT NULL, group_urn text COLLATE "C" NOT NULL, PRIMARY KEY (actor_urn, group_urn)
);
CREATE TABLE actors (urn text COLLATE "C" PRIMARY KEY, status text COLLATE "C" NOT NULL);
"""
TOKENS = """
INSERT INTO tokens
SELECT encode(sha256(n::text::bytea), 'base64'), 'PERSONAL', 'token ' || n, 'urn:li:corpuser:user' || n / 100,
       'urn:li:corpuser:user' || n / 100, now_ms(), now_ms() + 3600000, NULL, NULL
FROM generate_series(%s::bigint, %s::bigint) AS n
"""
MEMBERS = """
INSERT INTO group_members SELECT 'urn:li:corpuser:user' || n, 'urn:li:corpGroup:group' || n % 7
FROM generate_series(0, {most}, 2) AS n;
INSERT INTO actors SELECT 'urn:li:corpuser:user' || n, 'SUSPENDED' FROM generate_series(1, {most}, 50) AS n
"""

# The store's own columns and words, of one token and of a batch.
COLUMNS = """t.id, t.actor_urn, t.expires_at, t.revoked_at,
       coalesce((SELECT a.status = 'SUSPENDED' FROM actors AS a WHERE a.urn = t.actor_urn), false) AS suspended,
       ARRAY(SELECT m.group_urn FROM group_members AS m WHERE m.actor_urn = t.actor_urn) AS groups"""
FACTS = "(SELECT policy_version FROM state WHERE one = 1) AS version, (SELECT now_ms()) AS now"
WANTED = "FROM unnest($1::text[]) AS wanted (id) JOIN tokens AS t ON t.id = wanted.id"
ONE = f"SELECT {COLUMNS}, {FACTS} FROM tokens AS t WHERE t.id = $1"
SHARED = f"SELECT {COLUMNS}, {FACTS} {WANTED}"
# One row, whatever the batch: nested arrays of different lengths are none, so the groups of each are a text.
ARRAYS = f"""SELECT array_agg(id), array_agg(actor_urn), array_agg(expires_at), array_agg(revoked_at),
       array_agg(suspended), array_agg(array_to_string(groups, ' ')), {FACTS}
FROM (SELECT {COLUMNS} {WANTED}) AS rows"""
JSON = f"""SELECT json_build_array({FACTS.replace(" AS version", "").replace(" AS now", "")},
       json_agg(json_build_array(id, actor_urn, expires_at, revoked_at, suspended, groups)))::text
FROM (SELECT {COLUMNS} {WANTED}) AS rows"""
ANSWERS = {"rows": SHARED, "arrays": ARRAYS, "json": JSON}

STEADY = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
SESSIONS = {
    "as the server has it": {},
    "one plan for all": {"plan_cache_mode": "force_generic_plan"},
    "one plan, by index": STEADY,
}

Find = Callable[[str], Awaitable[Any]]
AskMany = Callable[[list[str]], Awaitable[Sequence[Any]]]


class Shared:
    """Sealed batches on one connection: while one is under way, the next gathers."""

    def __init__(self, ask: AskMany) -> None:
        self._ask = ask
        self._waiting: dict[str, list[asyncio.Future[Any]]] = {}
        self._busy = False
        self.batches = self.asked = 0
        self._task: asyncio.Task[None] | None = None

    def find(self, token_id: str) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.setdefault(token_id, []).append(answer)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._send)
        return answer

    def _send(self) -> None:
        sealed, self._waiting = self._waiting, {}
        self._task = asyncio.get_running_loop().create_task(self._under_way(sealed))

    async def _under_way(self, sealed: dict[str, list[asyncio.Future[Any]]]) -> None:
        rows = await self._ask(list(sealed))
        self.batches += 1
        self.asked += len(sealed)
        if self._waiting:
            self._send()
        else:
            self._busy = False
        for row in rows:
            for answer in sealed.pop(row[0]):
                answer.set_result(row)
        for unknown in sealed.values():
            for answer in unknown:
                answer.set_result(None)


async def asyncpg_connection(url: str, settings: dict[str, str] | None = None) -> Any:
    return await asyncpg.connect(url, server_settings={"jit": "off", **(settings or {})})


async def asyncpg_find(url: str) -> Find:
    connection = await asyncpg_connection(url)
    find: Find = (await connection.prepare(ONE)).fetchrow
    return find


async def asyncpg_many(url: str, statement: str = SHARED, settings: dict[str, str] | None = None) -> AskMany:
    connection = await asyncpg_connection(url, settings)
    ask: AskMany = (await connection.prepare(statement)).fetch
    return ask


async def psycopg_connection(url: str, settings: dict[str, str] | None = None) -> Any:
    options = " ".join(f"-c {name}={value}" for name, value in {"jit": "off", **(settings or {})}.items())
    # With threshold 0 it prepares at the first call; raw cursors take the statement as it is.
    return await psycopg.AsyncConnection.connect(
        url, autocommit=True, prepare_threshold=0, options=options, cursor_factory=psycopg.AsyncRawCursor
    )


async def psycopg_find(url: str) -> Find:
    cursor = (await psycopg_connection(url)).cursor(binary=True)

    async def find(token_id: str) -> Any:
        await cursor.execute(ONE, (token_id,))
        return await cursor.fetchone()

    return find


async def psycopg_many(url: str, statement: str = SHARED, settings: dict[str, str] | None = None) -> AskMany:
    cursor = (await psycopg_connection(url, settings)).cursor(binary=True)

    async def ask(ids: list[str]) -> Sequence[Any]:
        await cursor.execute(statement, (ids,))
        rows: Sequence[Any] = await cursor.fetchall()
        return rows

    return ask


async def psycopg_pipeline(url: str) -> AskMany:
    """A statement for each of the batch, sent together."""
    connection = await psycopg_connection(url)

    async def ask(ids: list[str]) -> Sequence[Any]:
        async with connection.pipeline():
            cursors = [connection.cursor(binary=True) for _ in ids]
            for cursor, token_id in zip(cursors, ids, strict=True):
                await cursor.execute(ONE, (token_id,))
        return [await cursor.fetchone() for cursor in cursors]

    return ask


def fill(cluster: Cluster, tokens: int) -> None:
    cluster.ask(TABLES)
    cluster.ask(TOKENS, 1, tokens)
    cluster.ask(MEMBERS.format(most=tokens // 100))
    cluster.ask("VACUUM ANALYZE")


def ids_of(cluster: Cluster, count: int) -> list[str]:
    query = "SELECT encode(sha256(n::text::bytea), 'base64') FROM generate_series(1::bigint, %s::bigint) AS n"
    return [row[0] for row in cluster.ask(query, count)]
