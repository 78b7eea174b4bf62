"""An unusable database prevents the start: one line that says what to do, exit code 1, no password."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from tests.support.postgres import LOCKED, PASSWORD, Address, Home
from tests.support.server import watchword
from watchword.database.migrations import latest

WRONG = "hunter2-is-no-password"
SECRETS = (WRONG, PASSWORD, "correct%20horse")
GRANT = "It must own the schema"


def rejection(env: dict[str, str], folder: Path, *words: str, code: int = 1) -> str:
    """Run a command that fails; return its error message."""
    done = watchword(*(words or ("db", "migrate")), "--data-dir", str(folder / "data"), env=env)
    assert (done.returncode, done.stdout) == (code, "")
    assert (done.stderr.count("\n"), done.stderr[:11]) == (1, "watchword: ")
    assert not any(secret in done.stderr for secret in SECRETS)
    return done.stderr


def env_with(database: Home, **changed: str) -> dict[str, str]:
    return database.env | {f"WATCHWORD_{name.upper()}": value for name, value in changed.items()}


def env_as_locked(database: Home, **how: str) -> dict[str, str]:
    return env_with(database, database_url=database.address.url(user=LOCKED, password=PASSWORD, **how))


@contextmanager
def temporary_database(postgres: Address, name: str, settings: str) -> Iterator[str]:
    made = sql.Identifier(name)
    with postgres.connect() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 " + settings).format(made))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(made))


def test_wrong_password_prevents_start(database: Home, tmp_path: Path) -> None:
    url = database.address.url(user=LOCKED, password=WRONG)
    said = rejection(env_with(database, database_url=url), tmp_path)
    assert f"{database.address.host} rejected the password of {LOCKED}. See WATCHWORD_DATABASE_URL." in said


def test_missing_password_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_with(database, database_url=database.address.url(user=LOCKED)), tmp_path)
    assert f"asks for a password of {LOCKED}, and ~/.pgpass does not have the right one. Put it there" in said


def test_wrong_pgpassword_is_named_before_the_password_file(database: Home, tmp_path: Path) -> None:
    (tmp_path / "pgpass").touch(mode=0o600)
    (tmp_path / "pgpass").write_text(f"*:*:*:{LOCKED}:{PASSWORD}\n")
    env = env_with(database, database_url=database.address.url(user=LOCKED), database_schema="nope")
    env["PGPASSFILE"] = str(tmp_path / "pgpass")
    assert "password" not in rejection(env, tmp_path)
    said = rejection(env | {"PGPASSWORD": WRONG}, tmp_path)
    assert f"rejected the password of {LOCKED} that PGPASSWORD has" in said
    assert "unset PGPASSWORD: it wins over PGPASSFILE" in said
    (tmp_path / "pgpass").write_text(f"*:*:*:{LOCKED}:{WRONG}\n")
    assert f"and {tmp_path}/pgpass does not have the right one" in rejection(env, tmp_path)


def test_missing_role_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_with(database, database_url=database.address.url(user="nobody", password=WRONG)), tmp_path)
    assert "rejected the login of nobody. Check pg_hba.conf and whether the role exists" in said


def test_missing_database_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_with(database, database_url=database.address.url(database="nope", password=WRONG)), tmp_path)
    assert "has no database nope. Make it: CREATE DATABASE nope OWNER ww ENCODING 'UTF8' TEMPLATE template0" in said


def test_role_without_create_privilege_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_as_locked(database), tmp_path)
    assert f"{GRANT} {database.schema}, or be able to create it: GRANT CREATE ON DATABASE ww TO {LOCKED}" in said


def test_empty_schema_of_another_role_prevents_start(database: Home, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema}")
    assert f"{GRANT} {database.schema}" in rejection(env_as_locked(database), tmp_path)


def test_unshared_store_of_another_role_prevents_start(database: Home, tmp_path: Path) -> None:
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=database.env).returncode == 0
    for grant in ("", "USAGE ON SCHEMA {}", "SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {}"):
        if grant:
            database.address.ask(f"GRANT {grant.format(database.schema)} TO {LOCKED}")
        assert f"{GRANT} {database.schema}" in rejection(env_as_locked(database), tmp_path)


def test_owning_the_schema_is_enough(database: Home, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} AUTHORIZATION {LOCKED}")
    done = watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=env_as_locked(database))
    made = f"Created the database with schema {latest('postgres')}.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, made, "")


@pytest.mark.parametrize("table", ["accounts", "migrations"])
def test_schema_with_foreign_tables_prevents_start(database: Home, table: str, tmp_path: Path) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} CREATE TABLE {table} (number integer)")
    said = rejection(database.env, tmp_path)
    assert f"{database.schema} holds tables of another program. Name another with WATCHWORD_DATABASE_SCHEMA." in said
    assert database.look("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", database.schema) == [
        (table,)
    ]


def test_newer_schema_version_prevents_start(database: Home, tmp_path: Path) -> None:
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=database.env).returncode == 0
    database.look("INSERT INTO migrations VALUES (4711, 'later', 0)")
    for words in (("key", "list"), ("serve", "--port", "1")):
        said = rejection(database.env, tmp_path, *words)
        assert (
            f"schema version 4711; this Watchword supports versions up to {latest('postgres')}. Use the newer" in said
        )


def test_wrong_master_key_prevents_start(database: Home, tmp_path: Path) -> None:
    prepare = ("key", "list", "--data-dir", str(tmp_path / "data"))
    assert watchword("db", "migrate", *prepare[2:], env=database.env).returncode == 0
    assert watchword(*prepare, env=database.env).returncode == 0
    other = tmp_path / "other.key"
    watchword("key", "new-master", str(other))
    env = env_with(database, master_key_file=str(other))
    for words in (("key", "list"), ("serve", "--port", "1")):
        said = rejection(env, tmp_path, *words)
        assert "sealed with another master key. Set WATCHWORD_MASTER_KEY_FILE to the right one." in said


def test_missing_master_key_file_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_with(database, master_key_file=str(tmp_path / "no.key")), tmp_path)
    assert f"no master key at {tmp_path / 'no.key'}. Put the key of this store there" in said
    assert f"for a new store: watchword key new-master {tmp_path / 'no.key'}" in said
    assert not (tmp_path / "no.key").exists()


def test_unset_master_key_file_prevents_start(database: Home, tmp_path: Path) -> None:
    env = {name: value for name, value in database.env.items() if name != "WATCHWORD_MASTER_KEY_FILE"}
    said = rejection(env, tmp_path)
    assert "WATCHWORD_MASTER_KEY_FILE must be set with PostgreSQL" in said
    assert "create one: watchword key new-master FILE" in said


def test_non_utf8_database_prevents_start(database: Home, tmp_path: Path) -> None:
    with temporary_database(database.address, f"latin_{database.schema}", "ENCODING 'LATIN1' LOCALE 'C'") as name:
        said = rejection(env_with(database, database_url=database.address.url(database=name)), tmp_path)
    assert f"{name} is in the encoding LATIN1. Make another: CREATE DATABASE" in said


def test_read_only_database_prevents_start(database: Home, tmp_path: Path) -> None:
    with temporary_database(database.address, f"still_{database.schema}", "") as name:
        database.address.ask(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        said = rejection(env_with(database, database_url=database.address.url(database=name)), tmp_path)
    assert "accepts no writes: it is a standby or read-only. Name the primary." in said


def test_exhausted_connections_prevent_start(database: Home, tmp_path: Path) -> None:
    role = f"crowded_{database.schema}"
    database.address.ask(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    try:
        said = rejection(env_with(database, database_url=database.address.url(user=role)), tmp_path)
    finally:
        database.address.ask(f"DROP ROLE {role}")
    assert "accepts no more connections. Raise its max_connections, or lower WATCHWORD_DATABASE_POOL." in said


def test_unknown_host_prevents_start(database: Home, tmp_path: Path) -> None:
    said = rejection(env_with(database, database_url=f"postgresql://ww:{WRONG}@no-such-host.invalid/ww"), tmp_path)
    assert "no-such-host.invalid:5432 cannot be reached. Start it, or see WATCHWORD_DATABASE_URL." in said


def test_start_output_contains_no_password(database: Home, make_server: Callable[..., Any]) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema} AUTHORIZATION {LOCKED}")
    server = make_server("--log-level", "debug", "--access-log", "all", env=env_as_locked(database))
    assert server.http.get("/health/ready").status_code == 200
    told = server.out.read_text() + server.err.read_text()
    assert f"postgresql://{LOCKED}@{database.address.host}/ww" in told
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert not any(secret in told + listed for secret in SECRETS)


@pytest.mark.parametrize("user", [LOCKED, "nobody"])
def test_traceback_contains_no_password(database: Home, user: str, tmp_path: Path) -> None:
    env = env_with(database, database_url=database.address.url(user=user, password=WRONG))
    done = watchword("--debug", "db", "migrate", "--data-dir", str(tmp_path / "data"), env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert not any(secret in done.stderr for secret in SECRETS)


@pytest.mark.parametrize("other", ["PUBLIC", LOCKED])
def test_schema_writable_by_others_prevents_start(database: Home, tmp_path: Path, other: str) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema}")
    database.address.ask(f"GRANT CREATE ON SCHEMA {database.schema} TO {other}")
    said = rejection(database.env, tmp_path)
    assert f"REVOKE CREATE ON SCHEMA {database.schema} FROM {other}" in said
    database.address.ask(f"REVOKE CREATE ON SCHEMA {database.schema} FROM {other}")
    assert watchword("db", "migrate", env=database.env, cwd=tmp_path).returncode == 0


def test_empty_database_url_prevents_start(tmp_path: Path) -> None:
    said = rejection({"WATCHWORD_DATABASE_URL": ""}, tmp_path)
    assert "WATCHWORD_DATABASE_URL must not be empty" in said
    assert not (tmp_path / "data").exists()
