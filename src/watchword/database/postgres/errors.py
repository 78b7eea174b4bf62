"""What the driver's errors mean: for a client, and for the operator."""

import ssl
from collections.abc import Callable

from asyncpg import exceptions as pg

from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.database.urls import PostgresUrl

Kinds = type[BaseException] | tuple[type[BaseException], ...]


class Unconfirmed(ConnectionError):
    """The list of standbys is such that their confirmation proves nothing. The text says why."""


class WaitCancelled(ConnectionError):
    """The primary committed, and its wait for the synchronous standby was cancelled: a failover may undo it."""


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
