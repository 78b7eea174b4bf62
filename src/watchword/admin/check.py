"""`db check`: the rules that every store must satisfy, checked in one read transaction; and the quick
summary of a store for `doctor`, at any size. Neither changes anything.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from watchword.access.policy_store import POLICY, policy_of
from watchword.accounts.rules import AccountGain
from watchword.accounts.store import account_gains
from watchword.admin.rules import SealedSecrets
from watchword.admin.tables import sealed_secrets
from watchword.authority.callers import ActorStatus
from watchword.authority.limits import unpacked
from watchword.authority.policies import PolicySource
from watchword.basics.errors import OperatorError
from watchword.basics.times import Clock
from watchword.database.postgres import maintenance
from watchword.database.postgres.connections import NOW, SNAPSHOT, Connection
from watchword.database.postgres.dialect import folded
from watchword.database.postgres.errors import lacks_right
from watchword.database.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.database.sqlite.database import SqliteTransaction, run
from watchword.database.sqlite.file import open_read_only
from watchword.database.transaction import Transaction
from watchword.database.urls import LastStart, PostgresUrl, SqliteUrl, StoreUrl, last_start_of
from watchword.index.rules import State
from watchword.tokens.rules import TokenType

Verdict = tuple[str, str | None]
"""A rule, and what breaks it; None where the rule holds."""


def _is_policy(row: Any) -> bool:
    policy = policy_of(row)
    are_lists = all(isinstance(orjson.loads(text), list) for text in row[4:7])
    return are_lists and (policy.source is PolicySource.FILE) == (policy.set_name is not None)


def _is_operation(row: Any) -> bool:
    _, state, finished_at, plan, work = row
    orjson.loads(plan), orjson.loads(work)
    return (finished_at is not None) == State(state).is_over


def _has_limits(row: Any) -> bool:
    return not unpacked(row[1]).are_none


def _is_folded(row: Any) -> bool:
    _, name, name_folded, description, description_folded = row
    return bool(folded(name) == name_folded and folded(description) == description_folded)


def _breaks(row: Any, row_check: Callable[[Any], bool]) -> bool:
    """A row that cannot be read breaks the rule too."""
    try:
        return not row_check(row)
    except (KeyError, TypeError, ValueError):
        return True


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _totals(kind: str) -> str:
    return f"""
        SELECT urn FROM (
            SELECT {kind}_urn AS urn, count(*) AS n FROM tokens WHERE revoked_at IS NULL GROUP BY {kind}_urn) AS counted
        FULL JOIN (SELECT urn, sum(total) AS total FROM token_totals WHERE kind = '{kind}' GROUP BY urn) AS kept
            USING (urn)
        WHERE coalesce(n, 0) <> coalesce(total, 0)"""


def _orphans(now: str) -> str:
    """An expired token may outlast its parent, which retention deleted."""
    return f"""SELECT id FROM tokens WHERE parent IS NOT NULL AND revoked_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM tokens AS p WHERE p.id = tokens.parent)
        AND (expires_at IS NULL OR expires_at > {now})"""


# Each statement selects the rows that break the rule or, for a rule in `_ROW_CHECKS`, the rows to check. The first
# column identifies a row. NOT EXISTS, not NOT IN: PostgreSQL compares each row with all of a long list.
RULES = {
    "every policy can be read": f"SELECT {POLICY} FROM policies",
    "every token and actor can be read": f"""
        SELECT id FROM tokens WHERE type NOT IN ({_quoted(kind.value for kind in TokenType)})
        UNION ALL SELECT urn FROM actors WHERE status NOT IN ({_quoted(status.value for status in ActorStatus)})""",
    "the limits of every token can be read": "SELECT id, limits FROM tokens WHERE limits IS NOT NULL",
    "no token expires after the token it is derived from": """
        SELECT t.id FROM tokens AS t JOIN tokens AS p ON p.id = t.parent
        WHERE t.revoked_at IS NULL AND (
            (p.revoked_at IS NOT NULL AND (t.expires_at IS NULL OR t.expires_at > p.revoked_at))
            OR (p.expires_at IS NOT NULL AND (t.expires_at IS NULL OR t.expires_at > p.expires_at))
            OR (p.expires_at IS NOT NULL AND t.grace IS NOT NULL
                AND (t.full_end IS NULL OR t.full_end > p.expires_at)))""",
    "every token is in the family of its parent and of the token it replaces": """
        SELECT t.id FROM tokens AS t JOIN tokens AS o ON o.id = t.parent
        WHERE coalesce(t.root, t.id) <> coalesce(o.root, o.id)
        UNION ALL SELECT t.id FROM tokens AS t JOIN tokens AS o ON o.id = t.replaces
        WHERE coalesce(t.root, t.id) <> coalesce(o.root, o.id)
        UNION ALL SELECT id FROM tokens WHERE root IS NULL AND coalesce(parent, replaces) IS NOT NULL""",
    "a token and its successor name each other": """
        SELECT t.id FROM tokens AS t JOIN tokens AS o ON o.id = t.replaces
        WHERE t.revoked_at IS NULL AND (
            coalesce(o.replaced_by, '') <> t.id OR (t.grace IS NULL) <> (o.replaced_at IS NOT NULL))
        UNION ALL SELECT id FROM tokens WHERE grace IS NOT NULL AND replaces IS NULL""",
    "every token of a service account has its account, and deleted accounts have no live tokens": f"""
        SELECT t.id FROM tokens AS t LEFT JOIN service_accounts AS a ON a.urn = t.actor_urn
        WHERE (t.type = '{TokenType.SERVICE_ACCOUNT.value}' AND a.urn IS NULL)
           OR (a.deleted_at IS NOT NULL AND t.revoked_at IS NULL)""",
    "every deleted service account is suspended": """
        SELECT urn FROM service_accounts AS s WHERE deleted_at IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = s.urn AND status = 'SUSPENDED')""",
    "every session has the actor of its token, and starts before it ends": """
        SELECT s.id FROM sessions AS s LEFT JOIN tokens AS t ON t.id = s.token_id
        WHERE t.actor_urn <> s.actor_urn OR s.ends_at < s.created_at""",
    "the total of tokens equals the number of tokens": """
        SELECT 1 WHERE (SELECT count(*) FROM tokens WHERE revoked_at IS NULL)
                    <> (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'all')""",
    "the totals per actor equal the number of tokens": _totals("actor"),
    "the totals per owner equal the number of tokens": _totals("owner"),
    "the sizes of groups equal the number of members": """
        SELECT urn FROM groups WHERE members <> (SELECT count(*) FROM group_members WHERE group_urn = urn)""",
    "every member is in a group made here, or in one of the identity provider": """
        SELECT group_urn FROM group_members
        WHERE (external = 1) = EXISTS (SELECT 1 FROM groups WHERE urn = group_urn)""",
    "every revocation has its event": """
        SELECT id FROM tokens WHERE revoked_at >= (SELECT events_since FROM state)
            AND NOT EXISTS (SELECT 1 FROM events WHERE target = tokens.id AND action = 'token.revoked')""",
    "every revocation event has its revoked token": """
        SELECT target FROM events WHERE action = 'token.revoked'
            AND EXISTS (SELECT 1 FROM tokens WHERE id = target AND revoked_at IS NULL)""",
    "every operation has a known state, and an end only if it is over": """
        SELECT number, state, finished_at, plan, work FROM operations""",
    "exactly one key is in use": """
        SELECT 1 WHERE (SELECT count(*) FROM keys WHERE retired_at IS NULL)
                    <> (SELECT CASE WHEN sealed_salt IS NULL THEN 0 ELSE 1 END FROM state)""",
    "the next key has not signed yet, and there is a key in use": """
        SELECT kid FROM next_key
        WHERE kid IN (SELECT kid FROM keys) OR (SELECT sealed_salt IS NULL FROM state)""",
}

SQLITE_RULES = {
    "every token id is unique": "SELECT id FROM tokens GROUP BY id HAVING count(*) > 1",
    "every live derived token has its parent": _orphans("unixepoch('subsec') * 1000"),
    **RULES,
}

POSTGRES_RULES = {
    "every index is valid": """
        SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND NOT (i.indisvalid AND i.indisready)""",
    "every trigger is enabled": """
        SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND t.tgenabled <> 'O'""",
    "every name can be searched without regard to case": """
        SELECT id, name, name_folded, description, description_folded FROM tokens
        WHERE name_folded IS NOT NULL OR description_folded IS NOT NULL
           OR octet_length(name) <> char_length(name) OR octet_length(description) <> char_length(description)""",
    "every live derived token has its parent": _orphans("now_ms()"),
    **RULES,
}

_ROW_CHECKS: dict[str, Callable[[Any], bool]] = {
    "every policy can be read": _is_policy,
    "the limits of every token can be read": _has_limits,
    "every operation has a known state, and an end only if it is over": _is_operation,
    "every name can be searched without regard to case": _is_folded,
}


def check(url: StoreUrl) -> Iterator[Verdict]:
    """The verdict on each rule as soon as it is known."""
    verdicts = _check_file(url) if isinstance(url, SqliteUrl) else _check_schema(url)

    async def step() -> Verdict | None:
        return await anext(verdicts, None)

    with asyncio.Runner() as runner:
        try:
            while (verdict := runner.run(step())) is not None:
                yield verdict
        finally:
            runner.run(verdicts.aclose())


async def _check_file(url: SqliteUrl) -> AsyncGenerator[Verdict, None]:
    try:
        STORE_FILE.version_of(url.path)
        with closing(connect(url.path, read_only=True)) as connection:
            async for verdict in file_verdicts(connection):
                yield verdict
    except apsw.Error as error:
        yield "the file can be read", f"{store_fault(error).message} ({error})"


async def _check_schema(url: PostgresUrl) -> AsyncGenerator[Verdict, None]:
    async with maintenance.maintenance_connection(url) as connection:
        version = await maintenance.schema_version(connection, url.schema)
        is_current = version == maintenance.LATEST
        yield f"the schema is version {maintenance.LATEST}", None if is_current else _outdated(version)
        if is_current:
            await connection.execute(SNAPSHOT)
            async for verdict in verdicts_on(connection, POSTGRES_RULES):
                yield verdict


async def file_verdicts(connection: apsw.Connection, *, older_too: bool = False) -> AsyncIterator[Verdict]:
    """With `older_too`, accept an older schema version and check only the rules that hold for every version."""
    version = STORE_FILE.version(connection)
    is_current = version == STORE_FILE.latest
    accepted = is_current or (older_too and version > 0)
    needed = version if older_too else STORE_FILE.latest
    yield f"the schema is version {needed}", None if accepted else _outdated(version)
    if accepted:
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
        yield "the file is not damaged", "; ".join(problems) or None
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        yield "every reference has its target", f"{len(broken)} have none" if broken else None
    if is_current:
        async for verdict in verdicts_on(SqliteTransaction(connection), SQLITE_RULES):
            yield verdict


def _outdated(version: int) -> str:
    return f"version {version}; run: watchword db migrate"


async def verdicts_on(tx: Transaction, rules: Mapping[str, str]) -> AsyncIterator[Verdict]:
    for rule, statement in rules.items():
        row_check = _ROW_CHECKS.get(rule)
        selected = tx.stream(statement, prefetch=2_000)
        found = [str(row[0]) async for row in selected if row_check is None or _breaks(row, row_check)]
        yield rule, f"{len(found)} exceptions, the first: {found[0]}" if found else None


async def require_sound(verdicts: AsyncIterator[Verdict], what: str) -> None:
    async for rule, problem in verdicts:
        if problem is not None:
            raise OperatorError(f"{what} breaks the rule: {rule} ({problem}). Nothing was changed.")


# Reading a larger file takes long; `db check` does it.
QUICK_CHECK_BYTES = 64 * 1024 * 1024


class DatabaseServer(NamedTuple):
    """`unsafe` are settings that are off, so that a crash may lose commits. `public` means that every role may connect.
    `clock_ahead_ms` is the least difference to this machine's clock.
    """

    version: str
    unsafe: Sequence[str]
    max_connections: int
    public: bool
    standbys: str
    clock_ahead_ms: int


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """Where the store cannot be used, `problem` says why and the rest is empty."""

    problem: str | None = None
    is_missing: bool = False
    """There is no file."""
    version: int = 0
    latest: int = 0
    tokens: int = 0
    """Not revoked."""
    quick_checked: bool = False
    newest_event: int | None = None
    sealed: SealedSecrets | None = None
    account_gains: tuple[AccountGain, ...] = ()
    """Empty for an older schema version."""
    has_imported: bool = False
    """Whether tokens of DataHub were imported."""
    last_start: LastStart | None = None
    server: DatabaseServer | None = None


def summarize(url: SqliteUrl | PostgresUrl, now: Clock) -> StoreSummary:
    return _summarize_file(url.path, now) if isinstance(url, SqliteUrl) else asyncio.run(_summarize_database(url, now))


def _summarize_file(path: Path, now: Clock) -> StoreSummary:
    if not path.is_file():
        return StoreSummary(is_missing=True)
    try:
        with closing(open_read_only(path)) as connection:
            version = STORE_FILE.version(connection)
            if not version:
                return StoreSummary("it is empty")
            small = path.stat().st_size <= QUICK_CHECK_BYTES
            verdict = connection.execute("PRAGMA quick_check(1)").get if small else "ok"
            if verdict != "ok":
                return StoreSummary(f"it is damaged: {verdict}")
            summary = StoreSummary(version=version, latest=STORE_FILE.latest, quick_checked=small)
            return run(_with_contents(SqliteTransaction(connection, now), summary))
    except OperatorError as error:
        return StoreSummary(str(error))
    except apsw.Error as error:
        return StoreSummary(f"it cannot be read: {error}")


async def _with_contents(tx: Transaction, summary: StoreSummary) -> StoreSummary:
    summary = replace(
        summary,
        tokens=int(await tx.fetchval("SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'all'")),
        newest_event=await tx.fetchval("SELECT at FROM events ORDER BY at DESC LIMIT 1"),
        sealed=await sealed_secrets(tx),
    )
    if summary.version < summary.latest:
        return summary
    last_start = last_start_of(await tx.fetchval("SELECT settings FROM state"))
    imported = bool(await tx.fetchval("SELECT EXISTS (SELECT 1 FROM imported_tokens)"))
    return replace(summary, account_gains=await account_gains(tx), has_imported=imported, last_start=last_start)


# Without `synchronous_commit`, which each of our connections turns on.
_SERVER = """
SELECT split_part(current_setting('server_version'), ' ', 1),
    ARRAY(SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name),
    (SELECT min(most) FROM (VALUES
        (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int),
        ((SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user)),
        ((SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))) AS v (most)),
    (SELECT datacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(datacl) WHERE grantee = 0 AND privilege_type = 'CONNECT')
     FROM pg_database WHERE datname = current_database()),
    current_setting('synchronous_standby_names')
"""
_MAY_CREATE = """
SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') AND has_schema_privilege(oid, 'USAGE')
                 FROM pg_namespace WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))"""


async def _summarize_database(url: PostgresUrl, now: Clock) -> StoreSummary:
    try:
        async with maintenance.operator_connection(url) as connection, asyncio.timeout(max(url.timeout, 2.0)):
            return await _summarize_schema(connection, url, now)
    except OperatorError as error:
        return StoreSummary(str(error))


async def _summarize_schema(connection: Connection, url: PostgresUrl, now: Clock) -> StoreSummary:
    found: Any = await connection.fetchrow(_SERVER)
    server = DatabaseServer(*(*found, await _clock_ahead(connection, now)))
    version = await maintenance.schema_version(connection, url.schema)
    summary = StoreSummary(version=version, latest=maintenance.LATEST, server=server)
    if not version:
        may_create = await connection.fetchval(_MAY_CREATE, url.schema)
        return summary if may_create else StoreSummary(lacks_right(url))
    if await connection.fetchval(maintenance.LACKS_RIGHTS, url.schema):
        return StoreSummary(lacks_right(url))
    return await _with_contents(connection, summary)


async def _clock_ahead(connection: Connection, now: Clock) -> int:
    """The time that the query took may explain a difference, so it is subtracted."""
    before = now()
    server_time: int = await connection.fetchval(NOW)
    answered = now()
    return server_time - answered if server_time > answered else min(server_time - before, 0)
