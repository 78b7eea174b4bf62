"""Where a store is, in an SQLite file or a PostgreSQL database; its schema version; and which standbys confirm reads.

Confirmed reads: what a primary shows counts once its synchronous standbys have confirmed that it still is one. A
primary that was replaced may not know it, and still answers. But a standby that was promoted confirms nothing more to
it. So after a read, on the same connection, a small transaction is committed, which waits for the standbys. If every
standby that may be promoted must confirm, none was promoted before the read began, and no change was made elsewhere.
No clock, lease or timeout is relied on.

The list of standbys must be such that all must confirm. Of `FIRST 1 (a, b)` one confirms, and the other may have been
promoted. Patroni's `synchronous_mode` lists the standbys that it may promote, and requires all; it writes `*` while it
has named no standby, and also when its agent is started again. With `*` any standby confirms, also one that is never
promoted. An empty list confirms nothing. So the list is read before and after each confirmation.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from watchword.basics.errors import OperatorError
from watchword.basics.secret import Secret

DEFAULT_PORT = 5432


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The hosts of one cluster, of which the primary is used, and the role to use. Its text omits the password."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: Secret[str] | None
    database: str
    schema: str = "watchword"
    options: tuple[tuple[str, str], ...] = ()
    timeout: float = 2.0  # seconds to wait for an answer
    pool: int = 8  # connections of a worker, besides those for verification
    reads_confirmed: bool = False  # a decision waits until the synchronous standbys have confirmed what it rests on
    patroni: bool = False  # Patroni decides which standbys must confirm, and which may be promoted
    password_source: str = "~/.pgpass"  # noqa: S105 - the name of a file
    """Where the driver looks for a password that is not in the URL."""

    def __str__(self) -> str:
        return f"postgresql://{quote(self.user, safe='')}@{self.where}/{quote(self.database, safe='')}"

    @property
    def where(self) -> str:
        if self.hosts[0][0].startswith("/"):
            return quote(self.hosts[0][0], safe="")
        return ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.hosts)


StoreUrl = SqliteUrl | PostgresUrl


class LastStart(NamedTuple):
    """The issuer and address of the service that last started on a store."""

    issuer: str
    listens_at: str


class SchemaVersions(NamedTuple):
    """The schema version of a store before and after it was prepared; 0 for a new store."""

    before: int
    after: int

    @property
    def is_migrated(self) -> bool:
        return 0 < self.before < self.after

    def __str__(self) -> str:
        if self.is_migrated:
            return f"Migrated the database from schema {self.before} to {self.after}."
        return f"{'The database has' if self.before else 'Created the database with'} schema {self.after}."


def require_version(where: object, found: int, needed: int) -> None:
    """Only `serve` and `db migrate` migrate a store."""
    if found != needed:
        raise OperatorError(
            f"The store at {where} has schema {found}; this Watchword needs {needed}. Nothing was changed. "
            "Stop every older service on it, then run: watchword db migrate"
        )


STANDBYS_SETTING = "synchronous_standby_names"
STANDBYS_ADVICE = (
    f"Name every standby that may be promoted and require all of them, such as {STANDBYS_SETTING} = 'FIRST 2 (a, b)'. "
    "Where Patroni runs the cluster, in its synchronous_mode, set WATCHWORD_DATABASE_FAILOVER=patroni."
)

_STANDBYS_LIST = re.compile(r"(?:(?:FIRST|ANY)\s+)?(\d+)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_STANDBY_NAME = re.compile(r'"(?:[^"]|"")*"|[^\s,]+')


@lru_cache(64)
def objection_to_standbys(names: str) -> str | None:
    """Why a confirmation by these standbys proves nothing; None if it proves something."""
    if not names.strip():
        return f"{STANDBYS_SETTING} is empty, so no standby confirms anything"
    match = _STANDBYS_LIST.fullmatch(names.strip())
    required, listed = (int(match[1]), match[2]) if match else (1, names)
    standbys = [name.strip('"') for name in _STANDBY_NAME.findall(listed)]
    if "*" in standbys:
        return f"{STANDBYS_SETTING} has a *, so a standby that need not confirm may be promoted"
    if required < len(standbys):
        return (
            f"{STANDBYS_SETTING} is {names}: only {required} of {len(standbys)} standbys must confirm, and another may "
            "be promoted"
        )
    return None


def last_start_of(stored: str | None) -> LastStart | None:
    """The stored settings of the last start, as JSON; None before the first start."""
    settings = json.loads(stored) if stored else {}
    return LastStart(settings["issuer"], settings["listensAt"]) if "issuer" in settings else None
