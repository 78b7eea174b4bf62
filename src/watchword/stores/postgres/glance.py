"""A glance at the store in a database: what can be seen quickly, at any size, without a trace."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from watchword.domain.accounts import AccountGain, gains
from watchword.domain.errors import OperatorError
from watchword.domain.ports import Clock
from watchword.domain.store_urls import LastStart, PostgresUrl
from watchword.stores import rows
from watchword.stores.migrate import latest
from watchword.stores.postgres.connections import DRIVER_ERRORS, NOW, Connection, advice, connect, lacks_right, quoted
from watchword.stores.postgres.migrations import DIALECT, lacking, schema_version
from watchword.stores.sqlite.keys import Sealed

LEAST_SECONDS = 2.0
MOST_ACCOUNTS = 1_000

# What is off of all that keeps a commit from being lost with the machine. `synchronous_commit` is not among it: each
# connection of ours turns it on.
_SERVER = """
SELECT current_setting('server_version'),
    ARRAY(SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name),
    (SELECT min(most) FROM (VALUES
        (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int),
        ((SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user)),
        ((SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))) AS v (most)),
    (SELECT datacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(datacl) WHERE grantee = 0 AND privilege_type = 'CONNECT')
     FROM pg_database WHERE datname = current_database())
"""
_MAY_MAKE = """
SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') AND has_schema_privilege(oid, 'USAGE')
                 FROM pg_namespace WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))"""


@dataclass(frozen=True, slots=True)
class DatabaseGlance:
    """`problem` where the database cannot be used: a sentence, with what to do. Else what it is and holds."""

    problem: str | None
    server: str = ""
    unsafe: tuple[str, ...] = ()
    """Settings of the server that are off and without which a commit may be lost."""
    most_connections: int = 0
    open_to_all: bool = False
    """Whether every role of the server may connect to the database, and so hold locks in it."""
    ahead_ms: int = 0
    """By how much at least its clock differs from ours."""
    version: int = 0
    latest: int = 0
    tokens: int = 0
    sealed: Sealed | None = None
    gains: tuple[AccountGain, ...] = ()
    """Who may do more by managing service accounts; not looked for in a store of an older version."""
    started: LastStart | None = None


def glance(place: PostgresUrl, now: Clock) -> DatabaseGlance:
    return asyncio.run(_glance(place, now))


async def _glance(place: PostgresUrl, now: Clock) -> DatabaseGlance:
    seconds = max(place.timeout, LEAST_SECONDS)
    try:
        connection = await connect(place, seconds=seconds)
        try:
            async with asyncio.timeout(seconds):
                return await _look(connection, place, now)
        finally:
            connection.terminate()
    except OperatorError as error:
        return DatabaseGlance(str(error))
    except DRIVER_ERRORS as error:
        return DatabaseGlance(str(advice(place, error)))


async def _look(connection: Connection, place: PostgresUrl, now: Clock) -> DatabaseGlance:
    server: Any = await connection.fetchrow(_SERVER)
    ahead = await _ahead(connection, now)
    version = await schema_version(connection, place.schema)
    seen = DatabaseGlance(
        problem=None,
        server=server[0].split()[0],
        unsafe=tuple(server[1]),
        most_connections=server[2],
        open_to_all=server[3],
        ahead_ms=ahead,
        version=version,
        latest=latest(DIALECT),
    )
    if not version:
        may = await connection.fetchval(_MAY_MAKE, place.schema)
        return seen if may else DatabaseGlance(lacks_right(place))
    if await lacking(connection, place.schema):
        return DatabaseGlance(lacks_right(place))
    return await _held(connection, place.schema, seen)


async def _held(connection: Connection, schema: str, seen: DatabaseGlance) -> DatabaseGlance:
    own = quoted(schema)
    state: Any = await connection.fetchrow(
        f"SELECT sealed_salt, (SELECT coalesce(sum(total), 0)::bigint FROM {own}.token_totals WHERE kind = 'all')"  # noqa: S608
        f", settings FROM {own}.state"
    )
    keys = await connection.fetch(
        f"SELECT kid, sealed_private FROM {own}.keys UNION ALL SELECT kid, sealed_private FROM {own}.next_key"  # noqa: S608
    )
    sealed = Sealed(state[0], [(kid, private) for kid, private in keys])
    found = await _gains(connection, own) if seen.version == seen.latest else ()
    return replace(seen, tokens=state[1], sealed=sealed, gains=found, started=rows.last_start(state[2]))


async def _gains(connection: Connection, own: str) -> tuple[AccountGain, ...]:
    kept = await connection.fetch(f"SELECT {rows.POLICY} FROM {own}.policies")  # noqa: S608
    policies = tuple(map(rows.policy_of, kept))
    named = sorted({user for policy in policies for user in policy.users})
    # Those that a policy can reach by more than by being for all users.
    found = await connection.fetch(
        f"SELECT urn FROM {own}.service_accounts WHERE deleted_at IS NULL AND (urn = ANY ($1::text[])"  # noqa: S608
        f" OR EXISTS (SELECT 1 FROM {own}.group_members WHERE actor_urn = urn)) ORDER BY urn LIMIT $2",
        named,
        MOST_ACCOUNTS,
    )
    accounts = [urn for (urn,) in found]
    groups: dict[str, list[str]] = {}
    for actor, group in await connection.fetch(
        f"SELECT actor_urn, group_urn FROM {own}.group_members WHERE actor_urn = ANY ($1::text[])",  # noqa: S608
        [*named, *accounts],
    ):
        groups.setdefault(actor, []).append(group)
    return tuple(gains(policies, groups, accounts))


async def _ahead(connection: Connection, now: Clock) -> int:
    """The clocks are compared by one question: whatever the way there and back took may be no difference."""
    asked = now()
    theirs: int = await connection.fetchval(NOW)
    answered = now()
    return theirs - answered if theirs > answered else min(theirs - asked, 0)
