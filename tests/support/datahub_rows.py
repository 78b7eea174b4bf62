"""Rows of DataHub's table `metadata_aspect_v2`, as it writes them, in MariaDB, PostgreSQL or an export file."""

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from psycopg import sql

from tests.support import mariadb
from tests.support.datahub_tokens import DataHubToken, datahub_token
from tests.support.mariadb import Mariadb
from tests.support.postgres import USER, Address

Row = tuple[str, str, int, str]
"""urn, aspect, version, metadata."""
_TABLE = """
CREATE TABLE metadata_aspect_v2 (
    urn varchar(500) NOT NULL, aspect varchar(200) NOT NULL, version bigint NOT NULL, metadata {text} NOT NULL,
    systemmetadata {text}, createdon {time} NOT NULL, createdby varchar(255) NOT NULL, createdfor varchar(255),
    CONSTRAINT pk_metadata_aspect_v2 PRIMARY KEY (urn, aspect, version))"""
_INSERT = """
INSERT INTO metadata_aspect_v2 (urn, aspect, version, metadata, createdon, createdby)
VALUES (%s, %s, %s, %s, now(), 'urn:li:corpuser:__datahub_system')"""


class DataHub(Protocol):
    """DataHub's database."""

    url: str

    def add(self, rows: Iterable[Row]) -> None: ...

    def delete(self, urn: str) -> None: ...


class DataHubInMariadb:
    def __init__(self, server: Mariadb, name: str) -> None:
        self.url = f"mysql://{mariadb.USER}:{quote(mariadb.PASSWORD, safe='')}@127.0.0.1:{server.port}/{name}"
        self._connection = server.connect(name)
        self._run(_TABLE.format(text="longtext", time="datetime(6)") + " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def _run(self, statement: str, *bound: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, bound or None)

    def add(self, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_INSERT, list(rows))

    def delete(self, urn: str) -> None:
        self._run("DELETE FROM metadata_aspect_v2 WHERE urn = %s", urn)

    def close(self) -> None:
        self._connection.close()


class DataHubInPostgres:
    """In a database of its own. Its collation is not that of bytes, as in most installations."""

    def __init__(self, server: Address, name: str) -> None:
        self.url = server.url(database=name)
        self._server = Address(server.kind, server.port, name)
        self._connection = self._server.connect()
        self._connection.execute(_TABLE.format(text="text", time="timestamp").encode())

    def add(self, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_INSERT, list(rows))

    def delete(self, urn: str) -> None:
        self._connection.execute("DELETE FROM metadata_aspect_v2 WHERE urn = %s", (urn,))

    def close(self) -> None:
        self._connection.close()


@contextmanager
def datahub_in_mariadb(server: Mariadb) -> Iterator[DataHubInMariadb]:
    with server.database() as name:
        made = DataHubInMariadb(server, name)
        yield made
        made.close()


@contextmanager
def datahub_in_postgres(server: Address) -> Iterator[DataHubInPostgres]:
    name = sql.Identifier(f"datahub_{uuid.uuid4().hex[:8]}")
    with server.connect() as connection:
        create = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        connection.execute(create.format(name, sql.Identifier(USER)))
        made = DataHubInPostgres(server, name._obj[0])
        yield made
        made.close()
        connection.execute(sql.SQL("DROP DATABASE {}").format(name))


def write_export(file: Path, rows: Iterable[Row]) -> Path:
    """As the commands of the page *Coming from DataHub* make it."""
    names = ("urn", "aspect", "version", "metadata")
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return file


def aspect(urn: str, name: str, value: Any, version: int = 0) -> Row:
    return urn, name, version, value if isinstance(value, str) else json.dumps(value)


def person(urn: str, **aspects: Any) -> list[Row]:
    """A person with further aspects: `person(urn, corpUserStatus={"status": "SUSPENDED"})`."""
    found = {"corpUserKey": {"username": urn.rpartition(":")[2]}, **aspects}
    return [aspect(urn, name, value) for name, value in found.items()]


def group(urn: str, **info: Any) -> list[Row]:
    key = {"name": urn.rpartition(":")[2]}
    return [aspect(urn, "corpGroupKey", key), aspect(urn, "corpGroupInfo", {"admins": [], "members": [], **info})]


def policy(short_id: str, **info: Any) -> Row:
    content = {
        "displayName": short_id, "description": "", "type": "PLATFORM", "state": "ACTIVE", "editable": True,
        "privileges": [], "actors": {}, **info,
    }  # fmt: skip
    return aspect(f"urn:li:dataHubPolicy:{short_id}", "dataHubPolicyInfo", content)


def token_row(token: DataHubToken, **info: Any) -> Row:
    """Fields of None are absent, as DataHub leaves them out."""
    content = {
        "name": "from DataHub", "actorUrn": token.actor, "ownerUrn": token.actor, "createdAt": token.created_at,
        "expiresAt": token.expires_at, **info,
    }  # fmt: skip
    return aspect(
        token.urn, "dataHubAccessTokenInfo", {name: value for name, value in content.items() if value is not None}
    )


def new_token(actor: str) -> tuple[DataHubToken, Row]:
    made = datahub_token(actor)
    return made, token_row(made)
