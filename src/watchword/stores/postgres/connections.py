"""Connections to the database: how they are opened and set, and what the driver's errors mean.

Of a list of hosts the primary is used, never a standby, and never again a primary that was replaced. Each connection is
set so that a commit that returned is on disk, that each statement sees what was committed before it began, and that no
statement waits, and no transaction holds a lock, for longer than we do.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.stores import STANDBYS_SETTING, PostgresUrl, objection_to_standbys
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.sql.transaction import Dialect

T = TypeVar("T")
Kinds = type[BaseException] | tuple[type[BaseException], ...]

OLDEST = 14
# The server cuts a statement off a little before we do, and so knows that nothing was done.
SERVER_SHARE = 0.9
# An instance that is stopped within a transaction loses it while those that wait for its locks have time left.
HOLDING_SHARE = 0.4

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""Works before the schema exists."""


# PostgreSQL commits on the primary and then waits for the standby. A wait that is cancelled ends in success and a
# warning; our connections report such a statement as one without an answer.
WARNING = "01000"
WAITS = "syncrep.c"
"""The source file of the warning. Its text is translated, and other warnings have the same SQLSTATE."""


STANDBYS = f"current_setting('{STANDBYS_SETTING}')"
LIST_STANDBYS = f"SELECT {STANDBYS}"
# The message takes a transaction id, so that the commit waits for the standbys. They then have all that was committed
# before. Without one there is nothing to wait for. The result is the list of standbys.
CONFIRM = f"SELECT {STANDBYS}, CASE WHEN {STANDBYS} <> '' THEN pg_logical_emit_message(true, 'watchword', '') END"
# No message if the list is `*`: its confirmation is not used, and without a standby the session would wait for ever.
MESSAGE = f"CASE WHEN {STANDBYS} NOT IN ('', '*') THEN pg_logical_emit_message(true, 'watchword', '') END"
CONFIRM_READ = f"SELECT {STANDBYS}, {MESSAGE}"


class Unconfirmed(ConnectionError):
    """The list of standbys is such that their confirmation proves nothing. The text says why."""


class WaitCancelled(ConnectionError):
    """The primary committed, and its wait for the synchronous standby was cancelled: a failover may undo it."""


_FOLDED = {
    # What lower() in the C collation cannot fold is stored folded.
    "tokens.name": "coalesce(tokens.name_folded, lower(tokens.name))",
    "tokens.description": "coalesce(tokens.description_folded, lower(tokens.description))",
}
_NAMES_OF_ACTORS = ("actors.display_name", "service_accounts.name")
LAST_CASED = 0x20000  # no character from here on has a case
# The bearer's family is read before it is locked: it never changes.
_LOCK = "SELECT lock_names($1::text[] || ('token:' || family_of($3::text)), $2::text[])"
# In one order, so that no two transactions that change the same rows wait for each other.
_LOCK_TOKENS = "SELECT 1 FROM tokens WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE"
_INSERT = rows.insert("tokens", f"{rows.INSERTED}, name_folded, description_folded")
_COUNT = "SELECT set_config('watchword.counts', $1, true)"
# Counts the revoked tokens itself: the trigger would update the same few totals once for each of them. Without the
# condition of the partial indexes: a plan made on an empty table would read one of them.
_MARK_REVOKED = """
WITH revoked AS (
    UPDATE tokens SET revoked_at = $2 WHERE id = ANY ($1::text[]) AND coalesce(revoked_at, 0) = 0
    RETURNING id, actor_urn, owner_urn, name
), counted AS (
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    SELECT kind, urn, current_slot(), -count(*) FROM revoked, LATERAL (
        VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
    GROUP BY kind, urn
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total
)
SELECT id, actor_urn, name FROM revoked"""


def _lowered(text: str) -> str:
    """SQL that lowers the case: of ASCII letters, and in names of actors of all letters."""
    if text not in _NAMES_OF_ACTORS:
        return f'lower({text} COLLATE "C")'
    upper, lower = _letters()
    return (
        f"CASE WHEN octet_length({text}) = length({text}) THEN lower({text})"
        f" ELSE translate({text}, '{upper}', '{lower}') END"
    )


@cache
def _letters() -> tuple[str, str]:
    """All capital letters, and the small one of each."""
    pairs = [(one, one.lower()) for one in map(chr, range(LAST_CASED)) if len(one.lower()) == 1 and one.lower() != one]
    return "".join(one for one, _ in pairs), "".join(small for _, small in pairs)


DIALECT = Dialect(
    for_update="FOR UPDATE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    # A number that is never used twice, not even by a standby that took over without the last ones: an instance that
    # has read a version has read its policies.
    next_policy_version="""
    UPDATE state SET policy_version = greatest(policy_version + 1, now_ms() * 1000 + floor(random() * 1000)::bigint)""",
    policy_users=""", LATERAL (SELECT user_urn COLLATE "C" AS value
        FROM json_array_elements_text(policies.users::json) AS user_urn) AS named""",
    any_of=lambda parameter: f"= ANY ({parameter}::text[])",
    any_number=lambda parameter: f"= ANY ({parameter}::bigint[])",
    each_of=lambda parameter, kind: f"unnest({parameter}::{kind}[]) AS each_of (value)",
    folded=lambda text: _FOLDED.get(text) or _lowered(text),
    position=lambda text, part: f"strpos({text}, {part})",
    ends_with=lambda text, part: f"right({text}, length({part})) = {part}",
    json_member=lambda column, name: f"({column}::json ->> '{name}')",
    json_array=lambda column, source: f"array_to_json(ARRAY(SELECT {column} FROM {source}))::text",
    json_rows=lambda columns: f"coalesce(json_agg(json_build_array({columns})), '[]')::text",
    json_objects=lambda _: "coalesce(json_agg(page), '[]')::text",
    # As a subquery it is called once, not for each row.
    stored_total=lambda kind, urn: f"(SELECT total_of({kind}, {urn}))",
    read_one_index=(
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; "
        "SET LOCAL max_parallel_workers_per_gather = 0"
    ),
    # An INSERT takes this lock before it takes a number. The transaction keeps it until its rows can be seen.
    by_index=lambda _: "",
    event_writers="""
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = 'events'::regclass AND mode = 'RowExclusiveLock'
      AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
)


class Connection(asyncpg.Connection):  # type: ignore[misc]  # comes without types
    """The driver's connection, as a `Transaction`. Raises `WaitCancelled` in place of the result of a statement that no
    standby confirmed. Prepared statements are not watched: ours only read.
    """

    __slots__ = ("_wait_cancelled", "place", "timeline")
    place: PostgresUrl
    timeline: int
    """The server's; each promotion of a standby begins a new one. 0 if the server does not say."""
    dialect: Dialect = DIALECT
    clock = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wait_cancelled = False
        self.watch()

    def watch(self) -> Self:
        """From when the pool gives it out until it is given back: the pool wants no listener on it then. Returns the
        connection itself, which, unlike the pool's proxy, can be used after it was closed.
        """
        self.add_log_listener(self._notice)
        return self

    def unwatch(self) -> None:
        self.remove_log_listener(self._notice)

    def _notice(self, _: Any, message: Any) -> None:
        """Called before the statement's result is handed on: the server sends the warning first."""
        if message.sqlstate == WARNING and message.server_source_filename in (None, WAITS):
            self._wait_cancelled = True

    def _confirmed(self, result: T) -> T:
        if self._wait_cancelled:
            raise WaitCancelled("the wait for the synchronous standby was cancelled")
        return result

    async def confirm(self) -> None:
        """Returns when the synchronous standbys have confirmed all that was read on this connection. Without confirmed
        reads an empty list of standbys means that there is nothing to wait for.
        """
        if self.place.reads_confirmed:
            names = await self.fetchval(CONFIRM_READ)
            self.check_standbys(names)
            await self.check_unchanged(names)
        else:
            await self.execute(CONFIRM)

    def check_standbys(self, names: str) -> None:
        """With confirmed reads, raise unless a confirmation by these standbys proves something."""
        problem = objection_to_standbys(names) if self.place.reads_confirmed else None
        if problem is not None:
            raise Unconfirmed(problem)

    async def check_unchanged(self, names: str) -> None:
        """After a wait, with confirmed reads: PostgreSQL ends the wait for a standby that is taken from the list."""
        if self.place.reads_confirmed and await self.fetchval(LIST_STANDBYS) != names:
            raise Unconfirmed(f"{STANDBYS_SETTING} changed")

    async def cancel_wait(self) -> None:
        """Close it after a statement was given up. The driver's request to cancel must arrive first: a session that
        waits for a standby does not notice that its client has gone, and would wait until the standby is back.
        """
        with suppress(*DRIVER_ERRORS):
            await self.close(timeout=CANCEL_SECONDS)

    async def execute(self, sql: str, *bound: Any) -> int:
        tag = self._confirmed(await super().execute(sql, *bound)).rpartition(" ")[2]  # such as DELETE 3
        return int(tag) if tag.isdigit() else 0

    async def executemany(self, sql: str, bound: Iterable[Sequence[Any]]) -> None:
        self._confirmed(await super().executemany(sql, bound))

    async def fetch(self, sql: str, *bound: Any) -> list[rows.Row]:
        return self._confirmed(await super().fetch(sql, *bound))

    async def fetchrow(self, sql: str, *bound: Any) -> rows.Row | None:
        row: rows.Row | None = self._confirmed(await super().fetchrow(sql, *bound))
        return row

    async def fetchval(self, sql: str, *bound: Any) -> Any:
        return self._confirmed(await super().fetchval(sql, *bound))

    async def search(self, sql: str, *bound: Any) -> list[rows.Row]:
        await self.execute(SEARCHING)
        found = await self.fetch(sql, *bound)
        await self.execute(SEARCHED)
        return found

    def stream(self, sql: str, *bound: Any, prefetch: int = 100) -> AsyncIterator[rows.Row]:
        found: AsyncIterator[rows.Row] = self.cursor(sql, *bound, prefetch=prefetch)
        return found

    async def now(self) -> int:
        return int(await self.fetchval("SELECT now_ms()"))

    async def lock(
        self, *, shared: Iterable[str] = (), exclusive: Iterable[str] = (), bearer: str | None = None
    ) -> None:
        await self.execute(_LOCK, list(shared), list(exclusive), bearer)

    async def root_of(self, token_id: str) -> str | None:
        return str(await self.fetchval("SELECT family_of($1)", token_id))

    async def take_slot(self) -> None:
        await self.execute("SELECT take_slot()")

    async def lock_tokens(self, ids: Sequence[str]) -> None:
        await self.execute(_LOCK_TOKENS, list(ids))

    async def insert_token(self, record: TokenRecord) -> None:
        await self.execute(_INSERT, *_inserted(record))

    async def insert_tokens(self, records: Sequence[TokenRecord]) -> None:
        await self.executemany(_INSERT, map(_inserted, records))

    async def mark_revoked(self, ids: Sequence[str], now: int) -> list[rows.Row]:
        await self.execute(_COUNT, "by_statement")
        revoked = await self.fetch(_MARK_REVOKED, list(ids), now)
        await self.execute(_COUNT, "")
        return revoked


def _inserted(record: TokenRecord) -> tuple[Any, ...]:
    """The values of `_INSERT`."""
    return (*rows.token_values(record), folded(record.name), folded(record.description))


class Replaced(ConnectionError):
    """The server accepts writes, but another one has a newer timeline: it was promoted in its place."""


class NoTls(ConnectionError):
    """The server does not offer TLS, which was asked for."""


_STANDBY = (pg.ReadOnlySQLTransactionError, pg.TargetServerAttributeNotMatched)
_LATE = "The store did not answer in time."
_CHANGED = "The store was removed or changed."
_AWAY = "The store cannot be reached."
# Faults of the machine, the network, the server or its administrator. Any other error is a defect of ours.
_OUTAGES: dict[Kinds, str] = {
    (pg.QueryCanceledError, pg.LockNotAvailableError, pg.DeadlockDetectedError, TimeoutError): _LATE,
    (pg.SerializationError, pg.IdleInTransactionSessionTimeoutError): _LATE,
    pg.DiskFullError: "The store's disk is full.",
    pg.TooManyConnectionsError: "The store accepts no more connections.",
    pg.OutOfMemoryError: "The store is out of memory.",
    pg.InsufficientResourcesError: "The store is out of resources.",
    _STANDBY: "The store accepts no writes: it is a standby or read-only.",
    pg.InvalidPasswordError: "The store rejected the password.",
    pg.InvalidAuthorizationSpecificationError: "The store rejected the login.",
    pg.InvalidCatalogNameError: "The store's database does not exist.",
    pg.InsufficientPrivilegeError: "The store's user lacks a privilege.",
    (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError): (
        "The connection pooler of the store must be in session mode."
    ),
    (pg.UndefinedTableError, pg.UndefinedColumnError, pg.UndefinedFunctionError, pg.InvalidSchemaNameError): _CHANGED,
    pg.FeatureNotSupportedError: _CHANGED,  # a cached plan whose table was replaced
    (pg.DataCorruptedError, pg.IndexCorruptedError): "The store is damaged: restore a backup.",
    pg.PostgresIOError: "The store's disk failed.",
    (ssl.SSLError, NoTls): "The TLS connection to the store failed.",
    (WaitCancelled, Unconfirmed): "The store's standby did not confirm what was read.",
    Replaced: "The store's primary was replaced.",
    (pg.OperatorInterventionError, pg.PostgresConnectionError, pg.ProtocolViolationError): _AWAY,
    # A connection that was closed while we used it, or that the server has closed and the driver not yet.
    (pg.InterfaceError, pg.InternalClientError, pg.ProtocolError, OSError): _AWAY,
}


DRIVER_ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError, TimeoutError)


def store_fault(error: BaseException) -> Fault:
    """The error that a client sees for a driver error or an unusable server."""
    if isinstance(error, OperatorError):
        return Fault(Reason.STORE_UNAVAILABLE, "The store cannot be used. Nothing was changed.", cause=str(error))
    cause = f"{type(error).__name__}: {error}"
    for kind, sentence in _OUTAGES.items():
        if isinstance(error, kind):
            return Fault(Reason.STORE_UNAVAILABLE, f"{sentence} Nothing was changed.", cause=cause)
    return Fault(Reason.INTERNAL, "Internal server error.", cause=cause)


def is_lost(error: BaseException) -> bool:
    """Whether the server gave no answer, so that it is unknown what it did with the last statement."""
    if isinstance(error, pg.PostgresConnectionError | pg.OperatorInterventionError):
        # A statement that the server cancelled changed nothing; a session that ended may have just committed.
        return not isinstance(error, pg.QueryCanceledError)
    return isinstance(error, pg.InterfaceError | pg.InternalClientError | OSError | TimeoutError)


SessionSettings = Mapping[str, str]
"""Settings of a connection, besides those that every connection has."""

# Point reads and writes have one good plan at any size, which is made once. It may be made while the tables are empty,
# and must not scan them when they are full, nor use an index that only seemed to fit.
_POINT = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
SEARCHING = "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on"
"""In a transaction: the next statements are planned for their values, with any plan."""
SEARCHED = "; ".join(f"SET LOCAL {name} = {value}" for name, value in _POINT.items())

DEFAULT_SETTINGS: SessionSettings = MappingProxyType({})
# The statement that verifies has one good plan at any size.
READING_MANY_TOKENS = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off"}


CANCEL_SECONDS = 0.5
# How long the other hosts may take once one accepts writes. A standby answers sooner.
OTHERS_SECONDS = 0.25
_TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"


async def connect(
    place: PostgresUrl,
    session: SessionSettings = DEFAULT_SETTINGS,
    *,
    seconds: float | None = None,
    timeline: int = 0,
    patient: bool = False,
) -> Connection:
    """A connection to the primary, with our settings. Raises the driver's errors.

    Several hosts may accept writes: a primary that was replaced may not know it. The one with the newest timeline is
    used, and none whose timeline is older than the given one. With `patient` it waits for the answers of all hosts.
    """
    deadline = time.monotonic() + (place.timeout if seconds is None else seconds)
    attempts = [asyncio.create_task(_opened(place, host, port, session)) for host, port in place.hosts]
    newest: Connection | None = None
    try:
        waiting = set(attempts)
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None:
                    newest = max(newest or task.result(), task.result(), key=lambda each: each.timeline)
                    if not patient:
                        deadline = min(deadline, time.monotonic() + OTHERS_SECONDS)
    except BaseException:
        newest = None
        raise
    finally:
        used = None if newest is None or newest.timeline < timeline else newest
        for task in attempts:
            task.cancel()
            task.add_done_callback(lambda task: _close_unless(used, task))
    if newest is None:
        raise _most_telling([task.exception() if task.done() else TimeoutError() for task in attempts])
    if used is None:
        raise Replaced(f"the server is on timeline {newest.timeline}, and one on {timeline} was seen")
    return used


def _close_unless(used: Connection | None, attempt: asyncio.Task[Connection]) -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not used:
        attempt.result().terminate()


def _most_telling(errors: Sequence[BaseException | None]) -> BaseException:
    """Of several hosts, the error of one that cannot be reached says more than that of a standby."""
    found = [error for error in errors if error is not None]
    return next((e for e in reversed(found) if not isinstance(e, pg.TargetServerAttributeNotMatched)), found[0])


async def _opened(place: PostgresUrl, host: str, port: int, session: SessionSettings) -> Connection:
    options = dict(place.options)
    try:
        connection: Connection = await asyncpg.connect(
            host=host,
            port=port,
            user=place.user,
            password=None if place.password is None else place.password.reveal(),
            database=place.database,
            ssl=tls(options),
            target_session_attrs="read-write",
            timeout=None,
            command_timeout=None,
            statement_cache_size=200,
            max_cached_statement_lifetime=0,
            connection_class=Connection,
        )
    except ConnectionError as error:
        if type(error) is ConnectionError and options.get("sslmode", "prefer") not in ("disable", "prefer"):
            raise NoTls(str(error)) from error  # the driver has no error class for it
        raise
    try:
        await _set(connection, place, session)
    except BaseException:
        connection.terminate()
        raise
    return connection


def tls(options: dict[str, str]) -> Any:
    """The `ssl` argument of asyncpg: the name of a mode, or a context if files are named."""
    mode = options.get("sslmode", "prefer")
    files = {name: options[name] for name in ("sslrootcert", "sslcert", "sslkey") if name in options}
    if not files or mode == "disable":
        return False if mode == "disable" else mode
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify-full"
    if mode in ("prefer", "require") and "sslrootcert" not in files:
        context.verify_mode = ssl.CERT_NONE
    try:
        if "sslrootcert" in files:
            context.load_verify_locations(files["sslrootcert"])
        if "sslcert" in files:
            context.load_cert_chain(files["sslcert"], files.get("sslkey"), "")
    except OSError as error:
        named = ", ".join(str(Path(file)) for file in files.values())
        raise OperatorError(
            f"WATCHWORD_DATABASE_URL names a certificate or key that cannot be used ({named}): "
            f"{error.strerror or 'it is no such PEM file'}."
        ) from None
    return context


async def _set(connection: Connection, place: PostgresUrl, session: SessionSettings) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST:
        raise OperatorError(
            f"The server at {place.where} is PostgreSQL {version.major}; the oldest that is supported is {OLDEST}. "
            "Upgrade it, or name another in WATCHWORD_DATABASE_URL."
        )
    encoding = connection.get_settings().server_encoding
    if encoding != "UTF8":
        raise OperatorError(
            f"The database {place.database} is in the encoding {encoding}. Make another: "
            f"CREATE DATABASE {place.database} ENCODING 'UTF8' TEMPLATE template0"
        )
    settings = {
        "search_path": quoted(place.schema),
        "application_name": "watchword",
        "statement_timeout": str(int(place.timeout * SERVER_SHARE * 1000)),
        "idle_in_transaction_session_timeout": str(int(place.timeout * HOLDING_SHARE * 1000)),
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "client_connection_check_interval": "1000",
        "jit": "off",
    }
    settings |= {**_POINT, **session}
    # A commit must be on disk, and on the synchronous standbys; a stronger setting stays.
    await connection.execute(
        "SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s(name, value)"
        " UNION ALL SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')",
        list(settings),
        list(settings.values()),
    )
    connection.place, connection.timeline = place, 0
    with suppress(pg.PostgresError):  # services that are compatible with PostgreSQL may not have it
        connection.timeline = await connection.fetchval(_TIMELINE)


def folded(text: str | None) -> str | None:
    """In lower case, where the database's lower() for ASCII would not do."""
    return None if text is None or text.isascii() else text.lower()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wrong_password(place: PostgresUrl) -> str:
    if place.password is not None:
        return f"PostgreSQL at {place.where} rejected the password of {place.user}. See WATCHWORD_DATABASE_URL."
    if place.password_source == "PGPASSWORD":  # noqa: S105 - the name of a variable
        return (
            f"PostgreSQL at {place.where} rejected the password of {place.user} that PGPASSWORD has. Correct it, or "
            "unset PGPASSWORD: it wins over PGPASSFILE and ~/.pgpass."
        )
    return (
        f"PostgreSQL at {place.where} asks for a password of {place.user}, and {place.password_source} does not have "
        "the right one. Put it there (mode 0600), or into WATCHWORD_DATABASE_URL."
    )


def lacks_right(place: PostgresUrl) -> str:
    return (
        f"The role {place.user} lacks a privilege in the database {place.database}. It must own the schema "
        f"{place.schema}, or be able to create it: GRANT CREATE ON DATABASE {place.database} TO {place.user}"
    )


# Messages for the operator, where the operator can fix the cause.
_ADVICE: dict[Kinds, str | Callable[[PostgresUrl], str]] = {
    pg.InvalidPasswordError: _wrong_password,
    pg.InvalidAuthorizationSpecificationError: (
        "PostgreSQL at {p.where} rejected the login of {p.user}. Check pg_hba.conf and whether the role exists."
    ),
    pg.InvalidCatalogNameError: (
        "PostgreSQL at {p.where} has no database {p.database}. Make it: "
        "CREATE DATABASE {p.database} OWNER {p.user} ENCODING 'UTF8' TEMPLATE template0"
    ),
    # The second of a schema that we may not read.
    (pg.InsufficientPrivilegeError, pg.InvalidSchemaNameError): lacks_right,
    _STANDBY: "PostgreSQL at {p.where} accepts no writes: it is a standby or read-only. Name the primary.",
    pg.TooManyConnectionsError: (
        "PostgreSQL at {p.where} accepts no more connections. Raise its max_connections, or lower "
        "WATCHWORD_DATABASE_POOL."
    ),
    pg.DiskFullError: "The disk of PostgreSQL at {p.where} is full. Free some space.",
    ssl.SSLError: (
        "PostgreSQL at {p.where} has no TLS certificate that we trust. Check sslmode and sslrootcert in "
        "WATCHWORD_DATABASE_URL."
    ),
    NoTls: (
        "PostgreSQL at {p.where} does not offer TLS, which sslmode in WATCHWORD_DATABASE_URL asks for. "
        "Turn on its setting ssl, or choose another sslmode."
    ),
    pg.ClientConfigurationError: (
        "Add sslrootcert=FILE to WATCHWORD_DATABASE_URL, the certificates (PEM) to check the server's by, or "
        "choose another sslmode."
    ),
    (TimeoutError, pg.InternalClientError): (
        "{p.where} did not answer in time as PostgreSQL does. Check the server, and that WATCHWORD_DATABASE_URL names "
        "it."
    ),
    WaitCancelled: "The standby of PostgreSQL at {p.where} did not confirm the change. Run this again once it does.",
    (OSError, pg.PostgresConnectionError): (
        "PostgreSQL at {p.where} cannot be reached. Start it, or see WATCHWORD_DATABASE_URL."
    ),
}


def advice(place: PostgresUrl, error: BaseException) -> OperatorError:
    """The message for the operator: what is wrong and what to do. Never contains a password."""
    for kind, sentence in _ADVICE.items():
        if isinstance(error, kind):
            return OperatorError(sentence.format(p=place) if isinstance(sentence, str) else sentence(place))
    return OperatorError(f"PostgreSQL at {place.where}: {store_fault(error).message}")


FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class ConnectionBackoff:
    """Opens connections. While the server is unavailable each attempt waits longer than the one before, by a random
    share, up to half a second. All that want a connection share the wait: many requests connect no more often than one.
    """

    def __init__(self, place: PostgresUrl) -> None:
        self.place = place
        self.on_new_primary: Callable[[int], None] = lambda _: None
        """Called with its timeline when another server has become the primary."""
        self.problem: BaseException | None = None
        """Why the last attempt failed; None after one that did not."""
        self.timeline = 0
        """The newest that was seen. A server of an older one is not used again."""
        self._pause = 0.0
        self._not_before = 0.0
        self._doubted = False
        """Whether the last connection was to a server that may have been replaced: now all hosts are asked."""

    async def connect(self, session: SessionSettings = DEFAULT_SETTINGS) -> Connection:
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 - a moment, not an event
            await asyncio.sleep(wait)
        try:
            connection = await connect(self.place, session, timeline=self.timeline, patient=self._doubted)
        except (*DRIVER_ERRORS, OperatorError) as error:
            self.problem = error
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._not_before = time.monotonic() + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            raise
        self._pause = 0.0
        self._doubted = False
        self.problem = None
        if connection.timeline > self.timeline:
            before, self.timeline = self.timeline, connection.timeline
            if before:
                self.on_new_primary(self.timeline)
        return connection

    def doubt(self, error: BaseException) -> None:
        """After a read that was not confirmed: ask all hosts for the primary, but not at once."""
        self._doubted = True
        if isinstance(error, Unconfirmed):
            self._not_before = max(self._not_before, time.monotonic() + LONGEST_PAUSE)

    def is_outdated(self, connection: Connection) -> bool:
        """Whether the server of this connection was replaced."""
        return connection.timeline < self.timeline

    def check_timeline(self, connection: Connection) -> None:
        if self.is_outdated(connection):
            raise Replaced(f"the server is on timeline {connection.timeline}, and one on {self.timeline} was seen")
