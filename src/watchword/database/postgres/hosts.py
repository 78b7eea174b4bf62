"""Connections are opened and set.

Of a list of hosts the primary is used, never a standby, and never again a primary that was replaced. Each connection is
set so that a commit that returned is on disk, that each statement sees what was committed before it began, and that no
statement waits, and no transaction holds a lock, for longer than we do.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from watchword.basics.errors import OperatorError
from watchword.database.postgres.connections import DEFAULT_SETTINGS, POINT, Connection, SessionSettings
from watchword.database.postgres.dialect import quoted
from watchword.database.postgres.errors import DRIVER_ERRORS, NoTls, Replaced, Unconfirmed
from watchword.database.urls import PostgresUrl

OLDEST = 14
# The server cuts a statement off a little before we do, and so knows that nothing was done.
SERVER_SHARE = 0.9
# An instance that is stopped within a transaction loses it while those that wait for its locks have time left.
HOLDING_SHARE = 0.4

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
    settings |= {**POINT, **session}
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
