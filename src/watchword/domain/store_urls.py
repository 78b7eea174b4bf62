"""Store URLs: the SQLite file or PostgreSQL database that holds a store, and its schema version."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret

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
