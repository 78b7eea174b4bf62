"""`db check` on PostgreSQL: everything that must be true of the store, asked of one moment of it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import orjson

from watchword.domain.actors import ActorStatus
from watchword.domain.operations import State
from watchword.domain.policies import PolicySource, PolicyState, Privilege
from watchword.domain.store_urls import PostgresUrl
from watchword.domain.token_limits import unpacked
from watchword.domain.tokens import TokenType
from watchword.stores import rows
from watchword.stores.migrate import latest
from watchword.stores.postgres.connections import SNAPSHOT, Connection, folded
from watchword.stores.postgres.migrations import DIALECT, schema_version
from watchword.stores.postgres.whole import at_work
from watchword.stores.transfer import BATCH

Find = Callable[[Connection], Awaitable[list[str]]]
Verdict = tuple[str, str | None]


def _asked(statement: str) -> Find:
    """Each row that it gives is an exception."""

    async def find(connection: Connection) -> list[str]:
        return [str(row[0]) for row in await connection.fetch(statement)]

    return find


def _read(statement: str, is_sound: Callable[[Any], bool]) -> Find:
    """For what SQL cannot say in every version: each row is looked at here."""

    async def find(connection: Connection) -> list[str]:
        return [str(r[0]) async for r in connection.cursor(statement, prefetch=BATCH) if not is_sound(r)]

    return find


def _is_policy(row: Any) -> bool:
    _, state, source, set_name, privileges, users, groups = row
    try:
        held, *others = (orjson.loads(text) for text in (privileges, users, groups))
    except orjson.JSONDecodeError:
        return False
    return (
        state in {known.value for known in PolicyState}
        and source in {known.value for known in PolicySource}
        and (source == PolicySource.FILE.value) == (set_name is not None)
        and all(isinstance(words, list) for words in (held, *others))
        and set(held) <= set(Privilege.__members__)
    )


def _is_operation(row: Any) -> bool:
    _, state, finished_at, plan, work = row
    try:
        orjson.loads(plan), orjson.loads(work)
        return (finished_at is not None) == State(state).is_over
    except ValueError:
        return False


def _is_limits(row: Any) -> bool:
    try:
        return not unpacked(row[1]).are_none
    except (ValueError, TypeError):
        return False


def _is_folded(row: Any) -> bool:
    _, name, name_folded, description, description_folded = row
    return bool(folded(name) == name_folded and folded(description) == description_folded)


def _totals(kind: str) -> Find:
    return _asked(f"""
        SELECT urn FROM (
            SELECT {kind}_urn AS urn, count(*) AS n FROM tokens WHERE revoked_at IS NULL GROUP BY {kind}_urn) AS counted
        FULL JOIN (SELECT urn, sum(total) AS total FROM token_totals WHERE kind = '{kind}' GROUP BY urn) AS kept
            USING (urn)
        WHERE coalesce(n, 0) <> coalesce(total, 0)""")  # noqa: S608 - words of our own


_LAWS: dict[str, Find] = {
    "every index is whole": _asked("""
        SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND NOT (i.indisvalid AND i.indisready)"""),
    "every trigger is at work": _asked("""
        SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND t.tgenabled <> 'O'"""),
    "every reference has its target": _asked(
        "SELECT group_urn FROM group_members WHERE group_urn NOT IN (SELECT urn FROM groups)"
    ),
    "every policy can be read": _read(
        "SELECT urn, state, source, set_name, privileges, users, groups FROM policies", _is_policy
    ),
    "every token and actor can be read": _asked(f"""
        SELECT id FROM tokens WHERE type NOT IN ({rows.words(t.value for t in TokenType)})
        UNION ALL SELECT urn FROM actors WHERE status NOT IN ({rows.words(s.value for s in ActorStatus)})"""),  # noqa: S608
    "the limits of every token can be read": _read(
        "SELECT id, limits FROM tokens WHERE limits IS NOT NULL", _is_limits
    ),
    **{law: _asked(exceptions) for law, exceptions in rows.LAWS.items()},
    "every live derived token has its parent": _asked(
        f"{rows.ORPHANS} AND (expires_at IS NULL OR expires_at > now_ms())"
    ),
    "every name can be found without regard to case": _read(
        """SELECT id, name, name_folded, description, description_folded FROM tokens
        WHERE name_folded IS NOT NULL OR description_folded IS NOT NULL
           OR octet_length(name) <> char_length(name) OR octet_length(description) <> char_length(description)""",
        _is_folded,
    ),
    "the total of tokens is what counting gives": _asked("""
        SELECT 1 WHERE (SELECT count(*) FROM tokens WHERE revoked_at IS NULL) <> total_of('all', '')"""),
    "the totals per actor are what counting gives": _totals("actor"),
    "the totals per owner are what counting gives": _totals("owner"),
    "the sizes of groups are what counting gives": _asked("""
        SELECT urn FROM groups WHERE members <> (SELECT count(*) FROM group_members WHERE group_urn = urn)"""),
    "every revocation has its event": _asked("""
        SELECT id FROM tokens WHERE revoked_at >= (SELECT events_since FROM state)
            AND NOT EXISTS (SELECT 1 FROM events WHERE action = 'token.revoked' AND target = id)"""),
    "every event of a revocation has its revoked token": _asked("""
        SELECT target FROM events WHERE action = 'token.revoked'
            AND EXISTS (SELECT 1 FROM tokens WHERE id = target AND revoked_at IS NULL)"""),
    "every operation is in a known state, and over just when it has an end": _read(
        "SELECT number, state, finished_at, plan, work FROM operations", _is_operation
    ),
    "just one key is in use": _asked("""
        SELECT 1 WHERE (SELECT count(*) FROM keys WHERE retired_at IS NULL)
                    <> (SELECT (sealed_salt IS NOT NULL)::integer FROM state)"""),
    "the next key has not signed yet, and waits only where another signs": _asked("""
        SELECT kid FROM next_key
        WHERE kid IN (SELECT kid FROM keys) OR (SELECT sealed_salt IS NULL FROM state)"""),
}


def check(place: PostgresUrl) -> Iterator[Verdict]:
    """Each law with what is wrong, or None where it holds."""
    verdicts = _verdicts(place)

    async def step() -> Verdict | None:
        return await anext(verdicts, None)

    with asyncio.Runner() as runner:
        try:
            while (verdict := runner.run(step())) is not None:
                yield verdict
        finally:
            runner.run(verdicts.aclose())


async def _verdicts(place: PostgresUrl) -> AsyncGenerator[Verdict, None]:
    async with at_work(place) as connection:
        version = await schema_version(connection, place.schema)
        behind = None if version == latest(DIALECT) else f"version {version}; run: watchword db migrate"
        yield f"the schema is version {latest(DIALECT)}", behind
        if behind is None:
            await connection.execute(SNAPSHOT)
            async for verdict in laws(connection):
                yield verdict


async def laws(connection: Connection) -> AsyncIterator[Verdict]:
    """In the transaction that is open."""
    for law, find in _LAWS.items():
        found = await find(connection)
        yield law, f"{len(found)} exceptions, the first: {found[0]}" if found else None
