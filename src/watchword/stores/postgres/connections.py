"""Connections to the database: how one is opened, what it must be, and what the driver's errors mean.

Only a server that takes writes is spoken to: of a list of hosts the one that does, and a standby never. Each connection
is set so that a commit that returned is on disk, that each statement sees what was committed before it began, and that
nothing of ours waits or holds a lock for longer than we do.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import asyncpg
from asyncpg import exceptions as pg

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.store_urls import PostgresUrl

Row = Sequence[Any]


class Statement(Protocol):
    async def fetch(self, *bound: Any) -> list[Row]: ...


class Connection(Protocol):
    """What is used of the driver's connection."""

    async def execute(self, statement: str, *bound: Any) -> str: ...
    async def executemany(self, statement: str, bound: Iterable[Sequence[Any]]) -> None: ...
    async def fetch(self, statement: str, *bound: Any) -> list[Row]: ...
    async def fetchrow(self, statement: str, *bound: Any) -> Row | None: ...
    async def fetchval(self, statement: str, *bound: Any) -> Any: ...
    async def prepare(self, statement: str) -> Statement: ...
    async def copy_records_to_table(
        self, table: str, *, records: Iterable[Row], columns: Sequence[str], schema_name: str | None = None
    ) -> str: ...
    def cursor(self, statement: str, *bound: Any, prefetch: int) -> AsyncIterator[Row]: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    def get_server_version(self) -> Any: ...
    def get_settings(self) -> Any: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...
    def terminate(self) -> None: ...
    def watch(self) -> Self: ...
    def unwatch(self) -> None: ...


OLDEST = 14
APPLICATION = "watchword"
# What a server may take to answer is counted by the server too, which then knows that nothing was done.
SERVER_SHARE = 0.9
# An instance that stands still within a transaction loses it while those who wait for its locks have time left.
HOLDING_SHARE = 0.4

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""Also where there is no schema of ours yet."""

_AWAY = "The store cannot be reached."
_POOLED = "The store is reached through a pooler that mixes up our sessions: it must be in session mode."
_CHANGED = "The store was taken away or changed."


# PostgreSQL commits on the primary and then waits for the standby. A wait that is cancelled ends in success and a
# warning; our connections report such a statement as one without an answer.
#
# This statement takes a transaction id, so that its commit waits for the standby to confirm all that was committed
# before.
CONFIRM = """SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
    THEN pg_logical_emit_message(true, 'watchword', '') END"""
WARNING = "01000"
WAITS = "syncrep.c"
"""The source file of the warning. Its text is translated, and other warnings have the same SQLSTATE."""


class WaitCancelled(ConnectionError):
    """The primary committed, and its wait for the synchronous standby was cancelled: a failover may undo it."""


class WatchedConnection(asyncpg.Connection):  # type: ignore[misc]  # comes without types
    """Raises `WaitCancelled` in place of the result of a statement that no standby confirmed. Prepared statements are
    not watched: ours only read.
    """

    __slots__ = ("_wait_cancelled",)

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

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().execute(*args, **kwargs))

    async def executemany(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().executemany(*args, **kwargs))

    async def fetch(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetch(*args, **kwargs))

    async def fetchrow(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetchrow(*args, **kwargs))

    async def fetchval(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetchval(*args, **kwargs))

    def _notice(self, _: Any, message: Any) -> None:
        """Called before the statement's result is handed on: the server sends the warning first."""
        if message.sqlstate == WARNING and message.server_source_filename in (None, WAITS):
            self._wait_cancelled = True

    def _confirmed(self, result: Any) -> Any:
        if self._wait_cancelled:
            raise WaitCancelled("the wait for the synchronous standby was cancelled")
        return result


class NoTls(ConnectionError):
    """The server does not offer TLS, which was asked for."""


# What the machine, the network, the administrator or another process does to us. Anything else is a defect of ours.
_OUTAGES: tuple[tuple[type[BaseException], str], ...] = (
    (pg.QueryCanceledError, "The store did not answer in time."),
    (TimeoutError, "The store did not answer in time."),
    (pg.LockNotAvailableError, "The store did not answer in time."),
    (pg.DeadlockDetectedError, "The store did not answer in time."),
    (pg.SerializationError, "The store did not answer in time."),
    (pg.DiskFullError, "The store's disk is full."),
    (pg.TooManyConnectionsError, "The store takes no further connection."),
    (pg.OutOfMemoryError, "The store is out of memory."),
    (pg.InsufficientResourcesError, "The store is out of resources."),
    (pg.ReadOnlySQLTransactionError, "The store takes no writes: it is a standby, or set to read only."),
    (pg.TargetServerAttributeNotMatched, "The store takes no writes: it is a standby, or set to read only."),
    (pg.InvalidPasswordError, "The store refuses our password."),
    (pg.InvalidAuthorizationSpecificationError, "The store does not let us in."),
    (pg.InvalidCatalogNameError, "The store's database does not exist."),
    (pg.InsufficientPrivilegeError, "The store's user lacks a right."),
    (pg.InvalidSQLStatementNameError, _POOLED),
    (pg.DuplicatePreparedStatementError, _POOLED),
    (pg.UndefinedTableError, _CHANGED),
    (pg.UndefinedColumnError, _CHANGED),
    (pg.UndefinedFunctionError, _CHANGED),
    (pg.InvalidSchemaNameError, _CHANGED),
    (pg.FeatureNotSupportedError, _CHANGED),  # a cached plan whose table was replaced
    (pg.DataCorruptedError, "The store is damaged: restore a backup."),
    (pg.IndexCorruptedError, "The store is damaged: restore a backup."),
    (pg.PostgresIOError, "The store's disk failed."),
    (pg.OperatorInterventionError, _AWAY),
    (pg.IdleInTransactionSessionTimeoutError, "The store did not answer in time."),
    (pg.PostgresConnectionError, _AWAY),
    (pg.InterfaceError, _AWAY),  # of a connection that was closed under our hands
    (pg.InternalClientError, _AWAY),  # of one that the server has ended and the driver not yet: it takes no statement
    (pg.ProtocolViolationError, _AWAY),
    (pg.ProtocolError, _AWAY),
    (ssl.SSLError, "The store cannot be reached safely."),
    (NoTls, "The store cannot be reached safely."),
    (WaitCancelled, "The store's standby did not confirm what was read."),
    (OSError, _AWAY),
)


DRIVER_ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError, TimeoutError)


def store_fault(error: BaseException) -> Fault:
    """The public face of a driver error, or of a server that is not for us."""
    if isinstance(error, OperatorError):
        return Fault(Reason.STORE_UNAVAILABLE, "The store cannot be used. Nothing was changed.", why=str(error))
    why = f"{type(error).__name__}: {error}"
    for kind, sentence in _OUTAGES:
        if isinstance(error, kind):
            return Fault(Reason.STORE_UNAVAILABLE, f"{sentence} Nothing was changed.", why=why)
    return Fault(Reason.INTERNAL, "Something went wrong here, not with your request.", why=why)


def is_lost(error: BaseException) -> bool:
    """Whether after this error nobody here knows what the server did with the last statement: it gave no answer."""
    if isinstance(error, pg.PostgresConnectionError | pg.OperatorInterventionError):
        # Told by the server, a cancelled statement changed nothing; a session that ended may have just committed.
        return not isinstance(error, pg.QueryCanceledError)
    return isinstance(error, pg.InterfaceError | pg.InternalClientError | OSError | TimeoutError)


@dataclass(frozen=True, slots=True)
class Session:
    """What a connection is set to, besides what every one is."""

    settings: tuple[tuple[str, str], ...] = ()


# Point reads and writes have one good plan at any size, which is made once and not judged again. It may be made while
# the tables are empty, and must not walk over them when they no longer are: neither from end to end, nor by an index
# that only seems to fit (see the functions of the schema).
_POINT = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
SEARCHING = "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on"
"""In a transaction: what comes may be planned for the values it brings, and go about it as it likes."""
SEARCHED = "; ".join(f"SET LOCAL {name} = {value}" for name, value in _POINT.items())

READING_MANY_TOKENS = Session(
    (
        # The statement that verifies has one good plan at any size.
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("enable_bitmapscan", "off"),
    )
)


async def connect(place: PostgresUrl, session: Session = Session(), *, seconds: float | None = None) -> Connection:  # noqa: B008
    """A connection to the server that takes writes, set for us. Raises what the driver raises."""
    limit = place.timeout if seconds is None else seconds
    share = limit / len(place.hosts)
    last: BaseException | None = None
    for host, port in place.hosts:
        try:
            async with asyncio.timeout(share):
                connection = await _open(place, host, port)
                try:
                    await _set(connection, place, session)
                except BaseException:
                    connection.terminate()
                    raise
                return connection
        except (*DRIVER_ERRORS, OperatorError) as error:
            # Of several hosts, one that can be reached and is no primary tells less than one that cannot.
            if last is None or not isinstance(error, pg.TargetServerAttributeNotMatched):
                last = error
    assert last is not None
    raise last


async def _open(place: PostgresUrl, host: str, port: int) -> Connection:
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
            connection_class=WatchedConnection,
        )
    except ConnectionError as error:
        if type(error) is ConnectionError and options.get("sslmode", "prefer") not in ("disable", "prefer"):
            raise NoTls(str(error)) from error  # the driver has no kind of its own for it
        raise
    return connection


def tls(options: dict[str, str]) -> Any:
    """What asyncpg takes for `ssl`: a mode by its name, or a context where files are named."""
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


async def _set(connection: Connection, place: PostgresUrl, session: Session) -> None:
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
    bound = str(int(place.timeout * SERVER_SHARE * 1000))
    settings: Iterable[tuple[str, str]] = (
        ("search_path", quoted(place.schema)),
        ("application_name", APPLICATION),
        ("statement_timeout", bound),
        ("idle_in_transaction_session_timeout", str(int(place.timeout * HOLDING_SHARE * 1000))),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_deferrable", "off"),
        ("client_connection_check_interval", "1000"),
        ("jit", "off"),
        *_POINT.items(),
        *session.settings,
    )
    names, values = zip(*settings, strict=True)
    # A weaker promise than "on disk, and on the standbys that must have it" is not for us; a stronger one stays.
    await connection.execute(
        "SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s(name, value)"
        " UNION ALL SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') IN ('off', 'local')",
        names,
        values,
    )


def folded(text: str | None) -> str | None:
    """In lower case, where the database's lower() for ASCII would not do."""
    return None if text is None or text.isascii() else text.lower()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


Sentence = Callable[[PostgresUrl], str]


def _wrong_password(place: PostgresUrl) -> str:
    if place.password is not None:
        return f"PostgreSQL at {place.where} refuses the password of {place.user}. See WATCHWORD_DATABASE_URL."
    if place.password_source == "PGPASSWORD":  # noqa: S105 - the name of a variable
        return (
            f"PostgreSQL at {place.where} refuses the password of {place.user} that PGPASSWORD has. Correct it, or "
            "unset PGPASSWORD: it wins over PGPASSFILE and ~/.pgpass."
        )
    return (
        f"PostgreSQL at {place.where} asks for a password of {place.user}, and {place.password_source} does not have "
        "the right one. Put it there (mode 0600), or into WATCHWORD_DATABASE_URL."
    )


def _no_answer(place: PostgresUrl) -> str:
    return (
        f"At {place.where} nobody answers in time as PostgreSQL does. See that it is well, and that "
        "WATCHWORD_DATABASE_URL names it."
    )


def lacks_right(place: PostgresUrl) -> str:
    return (
        f"The role {place.user} lacks a right in the database {place.database}. It must own the schema {place.schema}, "
        f"or be able to make it: GRANT CREATE ON DATABASE {place.database} TO {place.user}"
    )


# What whoever starts it is told, where the reason is theirs to mend.
_ADVICE: tuple[tuple[type[BaseException], Sentence], ...] = (
    (pg.InvalidPasswordError, _wrong_password),
    (
        pg.InvalidAuthorizationSpecificationError,
        lambda p: (
            f"PostgreSQL at {p.where} does not let {p.user} in: see its pg_hba.conf, and whether the role exists."
        ),
    ),
    (
        pg.InvalidCatalogNameError,
        lambda p: (
            f"PostgreSQL at {p.where} has no database {p.database}. Make it: "
            f"CREATE DATABASE {p.database} OWNER {p.user} ENCODING 'UTF8' TEMPLATE template0"
        ),
    ),
    (pg.InsufficientPrivilegeError, lacks_right),
    (pg.InvalidSchemaNameError, lacks_right),  # of a schema that we may not look into
    (
        pg.TargetServerAttributeNotMatched,
        lambda p: f"PostgreSQL at {p.where} takes no writes: it is a standby, or set to read only. Name the primary.",
    ),
    (
        pg.ReadOnlySQLTransactionError,
        lambda p: f"PostgreSQL at {p.where} takes no writes: it is a standby, or set to read only. Name the primary.",
    ),
    (
        pg.TooManyConnectionsError,
        lambda p: (
            f"PostgreSQL at {p.where} takes no further connection. Raise its max_connections, or lower "
            "WATCHWORD_DATABASE_POOL."
        ),
    ),
    (pg.DiskFullError, lambda p: f"The disk of PostgreSQL at {p.where} is full. Make room there."),
    (
        ssl.SSLError,
        lambda p: (
            f"PostgreSQL at {p.where} does not prove by TLS who it is. See sslmode and sslrootcert in "
            "WATCHWORD_DATABASE_URL."
        ),
    ),
    (
        NoTls,
        lambda p: (
            f"PostgreSQL at {p.where} does not offer TLS, which sslmode in WATCHWORD_DATABASE_URL asks for. "
            "Turn on its setting ssl, or take another sslmode."
        ),
    ),
    (
        pg.ClientConfigurationError,
        lambda _: (
            "WATCHWORD_DATABASE_URL must say by sslrootcert=FILE which certificates (PEM) to check the server's by, "
            "or have another sslmode."
        ),
    ),
    (TimeoutError, _no_answer),
    (pg.InternalClientError, _no_answer),
    (
        WaitCancelled,
        lambda p: f"The standby of PostgreSQL at {p.where} did not confirm the change. Run this again once it does.",
    ),
    (
        OSError,
        lambda p: f"PostgreSQL at {p.where} cannot be reached. Start it, or see WATCHWORD_DATABASE_URL.",
    ),
    (
        pg.PostgresConnectionError,
        lambda p: f"PostgreSQL at {p.where} cannot be reached. Start it, or see WATCHWORD_DATABASE_URL.",
    ),
)


def advice(place: PostgresUrl, error: BaseException) -> OperatorError:
    """The sentence for whoever runs it: what is wrong and what to do. Never with a password."""
    for kind, sentence in _ADVICE:
        if isinstance(error, kind):
            return OperatorError(sentence(place))
    return OperatorError(f"PostgreSQL at {place.where}: {store_fault(error).message}")


FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class ConnectionBackoff:
    """Opens connections. While the server is away each attempt waits longer than the one before, by a random share, up
    to half a second. All that want a connection share the wait: a crowd of requests connects no more often than one.
    """

    def __init__(self, place: PostgresUrl) -> None:
        self.place = place
        self.problem: BaseException | None = None
        """Why the last attempt failed; None after one that did not."""
        self._pause = 0.0
        self._not_before = 0.0

    async def connect(self, session: Session = Session()) -> Connection:  # noqa: B008 - frozen
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 - a moment, not an event
            await asyncio.sleep(wait)
        try:
            connection = await connect(self.place, session)
        except (*DRIVER_ERRORS, OperatorError) as error:
            self.problem = error
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._not_before = time.monotonic() + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            raise
        self._pause = 0.0
        self.problem = None
        return connection
