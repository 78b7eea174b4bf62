"""A database that cannot be used stops the start: one sentence with what to do, exit code 1, and no password in it."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from tests.support.postgres import LOCKED, PASSWORD, Address, Home
from tests.support.server import watchword
from watchword.stores.migrations import latest

WRONG = "hunter2-is-no-password"
SECRETS = (WRONG, PASSWORD, "correct%20horse")
GRANT = "It must own the schema"


def refused(env: dict[str, str], folder: Path, *words: str, code: int = 1) -> str:
    """What a command says that is refused."""
    done = watchword(*(words or ("db", "migrate")), "--data-dir", str(folder / "data"), env=env)
    assert (done.returncode, done.stdout) == (code, "")
    assert (done.stderr.count("\n"), done.stderr[:11]) == (1, "watchword: ")
    assert not any(secret in done.stderr for secret in SECRETS)
    return done.stderr


def at(database: Home, **changed: str) -> dict[str, str]:
    return database.env | {f"WATCHWORD_{name.upper()}": value for name, value in changed.items()}


def as_locked(database: Home, **how: str) -> dict[str, str]:
    return at(database, database_url=database.address.url(user=LOCKED, password=PASSWORD, **how))


@contextmanager
def own_database(postgres: Address, name: str, settings: str) -> Iterator[str]:
    made = sql.Identifier(name)
    with postgres.connect() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 " + settings).format(made))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(made))


def test_a_wrong_password(database: Home, tmp_path: Path) -> None:
    url = database.address.url(user=LOCKED, password=WRONG)
    said = refused(at(database, database_url=url), tmp_path)
    assert f"{database.address.host} rejected the password of {LOCKED}. See WATCHWORD_DATABASE_URL." in said


def test_no_password_where_one_is_asked_for(database: Home, tmp_path: Path) -> None:
    said = refused(at(database, database_url=database.address.url(user=LOCKED)), tmp_path)
    assert f"asks for a password of {LOCKED}, and ~/.pgpass does not have the right one. Put it there" in said


def test_wrong_pgpassword_is_named_although_the_password_file_has_the_right_one(database: Home, tmp_path: Path) -> None:
    (tmp_path / "pgpass").touch(mode=0o600)
    (tmp_path / "pgpass").write_text(f"*:*:*:{LOCKED}:{PASSWORD}\n")
    env = at(database, database_url=database.address.url(user=LOCKED), database_schema="nope")
    env["PGPASSFILE"] = str(tmp_path / "pgpass")
    assert "password" not in refused(env, tmp_path)
    said = refused(env | {"PGPASSWORD": WRONG}, tmp_path)
    assert f"rejected the password of {LOCKED} that PGPASSWORD has" in said
    assert "unset PGPASSWORD: it wins over PGPASSFILE" in said
    (tmp_path / "pgpass").write_text(f"*:*:*:{LOCKED}:{WRONG}\n")
    assert f"and {tmp_path}/pgpass does not have the right one" in refused(env, tmp_path)


def test_a_role_that_is_not_there(database: Home, tmp_path: Path) -> None:
    said = refused(at(database, database_url=database.address.url(user="nobody", password=WRONG)), tmp_path)
    assert "rejected the login of nobody. Check pg_hba.conf and whether the role exists" in said


def test_a_database_that_is_not_there(database: Home, tmp_path: Path) -> None:
    said = refused(at(database, database_url=database.address.url(database="nope", password=WRONG)), tmp_path)
    assert "has no database nope. Make it: CREATE DATABASE nope OWNER ww ENCODING 'UTF8' TEMPLATE template0" in said


def test_a_role_that_may_make_no_schema(database: Home, tmp_path: Path) -> None:
    said = refused(as_locked(database), tmp_path)
    assert f"{GRANT} {database.schema}, or be able to create it: GRANT CREATE ON DATABASE ww TO {LOCKED}" in said


def test_an_empty_schema_of_another_role(database: Home, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema}")
    assert f"{GRANT} {database.schema}" in refused(as_locked(database), tmp_path)


def test_a_store_that_another_role_made_and_did_not_share(database: Home, tmp_path: Path) -> None:
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=database.env).returncode == 0
    for grant in ("", "USAGE ON SCHEMA {}", "SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {}"):
        if grant:
            database.address.ask(f"GRANT {grant.format(database.schema)} TO {LOCKED}")
        assert f"{GRANT} {database.schema}" in refused(as_locked(database), tmp_path)


def test_a_role_that_owns_the_schema_and_nothing_else_is_enough(database: Home, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} AUTHORIZATION {LOCKED}")
    done = watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=as_locked(database))
    made = f"Created the database with schema {latest('postgres')}.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, made, "")


@pytest.mark.parametrize("table", ["accounts", "migrations"])
def test_a_schema_with_tables_of_another_program(database: Home, table: str, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} CREATE TABLE {table} (number integer)")
    said = refused(database.env, tmp_path)
    assert f"{database.schema} holds tables of another program. Name another with WATCHWORD_DATABASE_SCHEMA." in said
    assert database.look("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", database.schema) == [
        (table,)
    ]


def test_a_store_of_a_newer_version(database: Home, tmp_path: Path) -> None:
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=database.env).returncode == 0
    database.look("INSERT INTO migrations VALUES (4711, 'later', 0)")
    for words in (("keys", "list"), ("serve", "--port", "1")):
        said = refused(database.env, tmp_path, *words)
        assert (
            f"schema version 4711; this Watchword supports versions up to {latest('postgres')}. Use the newer" in said
        )


def test_another_master_key(database: Home, tmp_path: Path) -> None:
    prepare = ("keys", "list", "--data-dir", str(tmp_path / "data"))
    assert watchword("db", "migrate", *prepare[2:], env=database.env).returncode == 0
    assert watchword(*prepare, env=database.env).returncode == 0
    other = tmp_path / "other.key"
    watchword("keys", "master", str(other))
    env = at(database, master_key_file=str(other))
    for words in (("keys", "list"), ("serve", "--port", "1")):
        said = refused(env, tmp_path, *words)
        assert "sealed with another master key. Set WATCHWORD_MASTER_KEY_FILE to the right one." in said


def test_a_master_key_file_that_is_not_there(database: Home, tmp_path: Path) -> None:
    said = refused(at(database, master_key_file=str(tmp_path / "no.key")), tmp_path)
    assert f"no master key at {tmp_path / 'no.key'}. Put the key of this store there" in said
    assert f"for a new store: watchword keys master {tmp_path / 'no.key'}" in said
    assert not (tmp_path / "no.key").exists()


def test_no_master_key_file_named(database: Home, tmp_path: Path) -> None:
    env = {name: value for name, value in database.env.items() if name != "WATCHWORD_MASTER_KEY_FILE"}
    said = refused(env, tmp_path)
    assert "WATCHWORD_MASTER_KEY_FILE must be set with PostgreSQL" in said
    assert "Create one: watchword keys master FILE" in said


def test_a_database_in_another_encoding(database: Home, tmp_path: Path) -> None:
    with own_database(database.address, f"latin_{database.schema}", "ENCODING 'LATIN1' LOCALE 'C'") as name:
        said = refused(at(database, database_url=database.address.url(database=name)), tmp_path)
    assert f"{name} is in the encoding LATIN1. Make another: CREATE DATABASE" in said


def test_a_database_set_to_read_only(database: Home, tmp_path: Path) -> None:
    with own_database(database.address, f"still_{database.schema}", "") as name:
        database.address.ask(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        said = refused(at(database, database_url=database.address.url(database=name)), tmp_path)
    assert "accepts no writes: it is a standby or read-only. Name the primary." in said


def test_no_connection_left(database: Home, tmp_path: Path) -> None:
    role = f"crowded_{database.schema}"
    database.address.ask(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    try:
        said = refused(at(database, database_url=database.address.url(user=role)), tmp_path)
    finally:
        database.address.ask(f"DROP ROLE {role}")
    assert "accepts no more connections. Raise its max_connections, or lower WATCHWORD_DATABASE_POOL." in said


def test_a_host_that_is_not_there(database: Home, tmp_path: Path) -> None:
    said = refused(at(database, database_url=f"postgresql://ww:{WRONG}@no-such-host.invalid/ww"), tmp_path)
    assert "no-such-host.invalid:5432 cannot be reached. Start it, or see WATCHWORD_DATABASE_URL." in said


def test_what_a_start_tells_names_no_password(database: Home, make_server: Callable[..., Any]) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} AUTHORIZATION {LOCKED}")
    server = make_server("--log-level", "debug", "--access-log", "all", env=as_locked(database))
    assert server.http.get("/health/ready").status_code == 200
    told = server.out.read_text() + server.err.read_text()
    assert f"postgresql://{LOCKED}@{database.address.host}/ww" in told
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert not any(secret in told + listed for secret in SECRETS)


@pytest.mark.parametrize("user", [LOCKED, "nobody"])
def test_where_an_error_came_from_is_shown_without_the_password(database: Home, user: str, tmp_path: Path) -> None:
    env = at(database, database_url=database.address.url(user=user, password=WRONG))
    done = watchword("--debug", "db", "migrate", "--data-dir", str(tmp_path / "data"), env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert not any(secret in done.stderr for secret in SECRETS)


@pytest.mark.parametrize("other", ["PUBLIC", LOCKED])
def test_a_schema_in_which_others_may_create(database: Home, tmp_path: Path, other: str) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema}")
    database.address.ask(f"GRANT CREATE ON SCHEMA {database.schema} TO {other}")
    said = refused(database.env, tmp_path)
    assert f"REVOKE CREATE ON SCHEMA {database.schema} FROM {other}" in said
    database.address.ask(f"REVOKE CREATE ON SCHEMA {database.schema} FROM {other}")
    assert watchword("db", "migrate", env=database.env, cwd=tmp_path).returncode == 0


def test_an_address_that_is_empty_is_no_store_of_ones_own(tmp_path: Path) -> None:
    said = refused({"WATCHWORD_DATABASE_URL": ""}, tmp_path)
    assert "WATCHWORD_DATABASE_URL must not be empty" in said
    assert not (tmp_path / "data").exists()
