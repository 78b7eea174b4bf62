"""`db copy` between SQLite and PostgreSQL: everything or nothing, and tokens stay valid."""

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.fill import fill
from bench.population import Population, populate
from tests.support import exports
from tests.support.disks import small_disk
from tests.support.killing import killed_at, until_left_alone
from tests.support.postgres import LOCKED, PASSWORD, Address, Home, home
from tests.support.server import ADMIN, Server, watchword
from tests.support.waiting import SECONDS
from watchword.database.sqlite.connections import STORE_FILE

MakeServer = Callable[..., Server]
MANY = (10_000, pytest.param(100_000, marks=pytest.mark.soak))


def now() -> int:
    return time.time_ns() // 1_000_000


def sqlite(path: Path) -> str:
    return f"sqlite:///{path}"


def copy_words(source: str, target: str, key: Path, *flags: str) -> list[str]:
    return ["db", "copy", "--from", source, "--to", target, "--master-key-file", str(key), *flags]


def copy(source: str, target: str, key: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return watchword(*copy_words(source, target, key, *flags))


def into(database: Home) -> tuple[str, ...]:
    return ("--to-schema", database.schema)


def out_of(database: Home) -> tuple[str, ...]:
    return ("--from-schema", database.schema)


def is_there(database: Home) -> bool:
    return bool(database.address.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", database.schema))


@pytest.fixture
def store(with_token: Path, tmp_path: Path) -> Path:
    """A closed store with a token, and its master key."""
    return shutil.copytree(with_token, tmp_path / "d") / "watchword.db"


@pytest.fixture
def key(store: Path) -> Path:
    return store.parent / "master.key"


@pytest.fixture(params=MANY)
def many(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Population]]:
    folder = tmp_path / "many"
    yield folder / "watchword.db", populate(folder, request.param)
    shutil.rmtree(folder)


def test_many_tokens_survive_a_copy_to_postgresql_and_back(
    many: tuple[Path, Population], database: Home, make_server: MakeServer, tmp_path: Path
) -> None:
    store, population = many
    master, back = store.parent / "master.key", tmp_path / "back" / "watchword.db"
    went = copy(sqlite(store), database.url, master, *into(database), "--json")
    assert went.returncode == 0, went.stderr
    told = json.loads(went.stdout)
    assert told["rows"]["tokens"] == population.size
    before = exports.of_file(store)
    assert exports.of_home(database) == before
    came = copy(database.url, sqlite(back), master, *out_of(database), "--json")
    assert came.returncode == 0, came.stderr
    assert exports.of_file(back) == before
    assert json.loads(came.stdout)["sha256"] == told["sha256"]
    server = make_server("--local-mode", "on", env=database.env | {"WATCHWORD_MASTER_KEY_FILE": str(master)})
    holder = population.callers[0]
    assert server.verify(holder.token).status_code == 204
    assert server.tokens()["total"] == population.size * 9 // 10
    for field in ("actorUrn", "ownerUrn"):
        assert server.tokens(filters=[{"field": field, "value": holder.actor}], count=1)["total"] == live_of(
            store, holder.actor
        )
    assert server.revoke(population.to_revoke[0])
    assert server.tokens()["total"] == population.size * 9 // 10 - 1


def live_of(store: Path, actor: str) -> int:
    with closing(sqlite3.connect(f"file:{store}?mode=ro&immutable=1", uri=True)) as file:
        query = "SELECT count(*) FROM tokens WHERE actor_urn = ? AND revoked_at IS NULL"
        ((count,),) = file.execute(query, (actor,)).fetchall()
    assert count
    return int(count)


def test_token_of_postgresql_works_on_its_copy_in_a_file(
    database: Home, make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server("--local-mode", "on", env=database.env)
    made = server.create(ADMIN, name="Grüße, 'Straße' \"ẞ\" %_\\", description="é" * 1_000)
    ended = server.create(ADMIN)
    server.revoke(ended["metadata"]["id"])
    number = database.look("SELECT max(seq) FROM events")[0][0]
    server.stop()
    folder = tmp_path / "server1"
    done = copy(database.url, sqlite(folder / "data" / "watchword.db"), database.key_file, *out_of(database))
    assert done.returncode == 0, done.stderr
    other = make_server(env={"WATCHWORD_MASTER_KEY_FILE": str(database.key_file)}, folder=folder)
    assert other.verify(made["accessToken"]).status_code == 204
    assert other.verify(ended["accessToken"]).json()["error"]["reason"] == "token_revoked"
    found = [{"field": "name", "value": "GRÜSSE, 'STRASSE'", "condition": "CONTAIN"}]
    assert other.tokens(filters=found)["total"] == 0
    same = [{"field": "name", "value": made["metadata"]["name"].upper().replace("SS", "ß"), "condition": "IEQUAL"}]
    assert [token["id"] for token in other.tokens(filters=same)["tokens"]] == [made["metadata"]["id"]]
    other.create(ADMIN)
    with closing(sqlite3.connect(f"file:{folder}/data/watchword.db?mode=ro", uri=True)) as file:
        ((last,),) = file.execute("SELECT max(seq) FROM events").fetchall()
    assert last > number


def test_copy_prints_counts_and_comparison_and_key_warning(store: Path, key: Path, database: Home) -> None:
    done = copy(sqlite(store), database.url, key, *into(database))
    assert done.returncode == 0, done.stderr
    assert "1 token, " in done.stdout
    assert "Both hold the same: sha256 " in done.stdout
    assert f"master key was NOT copied. Start the service on the copy with {key}" in done.stdout
    assert f"no service on {store} any more" in done.stdout


def test_copy_shows_its_progress_on_a_terminal(store: Path, key: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = copy_words(sqlite(store), sqlite(tmp_path / "e" / "watchword.db"), key)
    done = subprocess.run(
        [sys.executable, "-m", "watchword", *words],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        timeout=SECONDS,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert done.returncode == 0
    assert b"Copying" in shown


def test_migrated_empty_target_is_accepted(store: Path, key: Path, database: Home) -> None:
    assert watchword("db", "migrate", env=database.env).returncode == 0
    went = copy(sqlite(store), database.url, key, *into(database))
    assert went.returncode == 0, went.stderr
    target = store.with_name("other.db")
    STORE_FILE.prepare(target)
    came = copy(database.url, sqlite(target), key, *out_of(database))
    assert came.returncode == 0, came.stderr
    assert exports.of_file(target) == exports.of_file(store)


def test_target_that_holds_anything_is_rejected_and_left_alone(store: Path, key: Path, database: Home) -> None:
    assert copy(sqlite(store), database.url, key, *into(database)).returncode == 0
    before = exports.of_home(database)
    target = store.with_name("other.db")
    shutil.copy(store, target)
    for where, flags in ((database.url, into(database)), (sqlite(target), ())):
        refused = copy(sqlite(store), where, key, *flags)
        assert refused.returncode == 1
        assert "--to must be empty" in refused.stderr
        assert "1 token, " in refused.stderr
    assert exports.of_home(database) == before
    assert exports.of_file(target) == exports.of_file(store)


def test_store_of_a_running_service_is_no_source_or_target(
    database: Home, make_server: MakeServer, tmp_path: Path
) -> None:
    running, filed = make_server("--local-mode", "on", env=database.env), make_server()
    made = [server.create(ADMIN)["accessToken"] for server in (running, filed)]
    path, key = filed.data_dir / "watchword.db", filed.data_dir / "master.key"
    with home(database.address, tmp_path) as empty:
        outward = copy(sqlite(path), empty.url, key, *into(empty))
        assert "Stop it first" in outward.stderr
        assert not is_there(empty)
    inward = copy(database.url, sqlite(tmp_path / "e.db"), database.key_file, *out_of(database))
    assert "Stop every instance" in inward.stderr
    assert "from 127.0.0.1" in inward.stderr
    assert not (tmp_path / "e.db").exists()
    assert [outward.returncode, inward.returncode] == [1, 1]
    verdicts = [server.verify(token).status_code for server, token in zip((running, filed), made, strict=True)]
    assert verdicts == [204, 204]


def test_file_is_copied_beside_another_in_a_folder_that_was_served(make_server: MakeServer) -> None:
    server = make_server()
    made = server.create(ADMIN)["accessToken"]
    server.stop()
    store, target = (server.data_dir / name for name in ("watchword.db", "other.db"))
    done = server.command_line("db", "copy", "--from", sqlite(store), "--to", sqlite(target))
    assert done.returncode == 0, done.stderr
    store.unlink()
    target.rename(store)
    assert server.start().verify(made).status_code == 204


def test_store_sealed_with_another_master_key_is_not_copied(store: Path, database: Home) -> None:
    done = copy(sqlite(store), database.url, database.key_file, *into(database))
    assert done.returncode == 1
    assert "another master key" in done.stderr
    assert not is_there(database)


def test_copy_without_a_key_does_not_advise_to_make_another(store: Path, database: Home, tmp_path: Path) -> None:
    missing = tmp_path / "missing.key"
    done = copy(sqlite(store), database.url, missing, *into(database))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"There is no master key at {missing}. The store " in done.stderr
    assert " is sealed with one: name its file with --master-key-file." in done.stderr
    assert "key new-master" not in done.stderr
    assert not is_there(database)


def test_store_with_an_operation_under_way_is_not_copied(store: Path, key: Path, database: Home) -> None:
    with closing(sqlite3.connect(store)) as file, file:
        columns = "index_name, state, plan, work, asked_by, asked_at"
        file.execute(f"INSERT INTO operations ({columns}) VALUES ('i', 'RUNNING', '{{}}', '{{}}', 'a', 1)")
    done = copy(sqlite(store), database.url, key, *into(database))
    assert done.returncode == 1
    assert "Operation 1 in the search index has not finished" in done.stderr
    assert not is_there(database)


def test_unsound_store_makes_no_copy(store: Path, key: Path, database: Home) -> None:
    with closing(sqlite3.connect(store)) as file, file:
        file.execute(
            "INSERT INTO policies (urn, name, state, privileges, users, groups, all_users, source)"
            " VALUES ('urn:li:p', 'n', 'ACTIVE', '[\"RULE\"]', '[]', '[]', 0, 'API')"
        )
    done = copy(sqlite(store), database.url, key, *into(database))
    assert done.returncode == 1
    assert "every policy can be read" in done.stderr
    assert not is_there(database)


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("mysql://h/d", "sqlite:///new.db", "--from must be postgresql://"),
        ("sqlite:///d/watchword.db", "postgresql://u@", "--to must be an address with a host"),
        ("sqlite:///d/watchword.db", "postgresql://u:hunter2@", "--to must not hold a password"),
        ("sqlite:///d/watchword.db", "", "--to must not be empty"),
        ("sqlite:///none.db", "sqlite:///new.db", "there is none at none.db"),
        ("sqlite:///d/watchword.db", "sqlite:///d/../d/watchword.db", "--to must be another store"),
        ("sqlite:///d/master.key", "sqlite:///new.db", "cannot be copied"),
        ("sqlite:///d/watchword.db", "sqlite:///d/master.key/new.db", "--to must be in a folder that can be created"),
    ],
)
def test_invalid_store_url_error_names_the_flag(store: Path, source: str, target: str, said: str) -> None:
    done = watchword(*copy_words(source, target, Path("d/master.key")), cwd=store.parent.parent)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr
    assert not (store.parent.parent / "new.db").exists()


def test_password_is_taken_from_the_password_file_and_never_shown(
    store: Path, key: Path, postgres: Address, tmp_path: Path
) -> None:
    file = tmp_path / "pgpass"
    file.touch(0o600)
    words = copy_words(sqlite(store), postgres.url(user=LOCKED), key, "--to-schema", "t_of_locked")
    file.write_text(f"127.0.0.1:{postgres.port}:*:{LOCKED}:hunter2\n")
    wrong = watchword(*words, env={"PGPASSFILE": str(file)})
    assert wrong.returncode == 1
    assert f"asks for a password of locked, and {file} does not have the right one" in wrong.stderr
    assert "hunter2" not in wrong.stderr
    file.write_text(f"127.0.0.1:{postgres.port}:*:{LOCKED}:{PASSWORD}\n")
    let_in = watchword(*words, env={"PGPASSFILE": str(file)})
    assert let_in.returncode == 1
    assert "The role locked lacks a privilege" in let_in.stderr


def test_folder_without_room_gets_no_copy(database: Home, tmp_path: Path) -> None:
    store = tmp_path / "d" / "watchword.db"
    fill(store, 5_000, now=now())
    assert copy(sqlite(store), database.url, database.key_file, *into(database)).returncode == 0
    with small_disk(tmp_path / "small", megabytes=1) as disk:
        done = copy(database.url, sqlite(disk / "e.db"), database.key_file, *out_of(database))
        assert done.returncode == 1
        assert "no space for the copy" in done.stderr
        assert list(disk.iterdir()) == []


def test_copy_that_does_not_hold_what_was_sent_is_not_kept(store: Path, key: Path, database: Home) -> None:
    """Add a trigger of another program to the target."""
    assert watchword("db", "migrate", env=database.env).returncode == 0
    database.look(
        """CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.peer := 'somebody else'; RETURN NEW; END $$"""
    )
    database.look("CREATE TRIGGER meddles BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION meddle()")
    done = copy(sqlite(store), database.url, key, *into(database))
    assert done.returncode == 1
    assert "The rows in the target differ from those in the source" in done.stderr
    assert database.look("SELECT count(*) FROM tokens") == [(0,)]


@pytest.mark.parametrize("number", [30, 90])
def test_copy_killed_in_the_middle_leaves_the_target_as_it_was(
    store: Path, key: Path, database: Home, number: int
) -> None:
    words = copy_words(sqlite(store), database.url, key, *into(database))
    assert killed_at(number, words)
    until_left_alone(database)
    assert not is_there(database)
    assert watchword(*words).returncode == 0
    assert exports.of_home(database) == exports.of_file(store)


@pytest.mark.soak
def test_copy_killed_at_any_of_its_messages_leaves_nothing_or_everything(
    store: Path, key: Path, database: Home
) -> None:
    words = copy_words(sqlite(store), database.url, key, *into(database))
    number, killed = 1, True
    while killed:
        killed = killed_at(number, words)
        until_left_alone(database)
        if is_there(database):
            assert exports.of_home(database) == exports.of_file(store)
            database.drop()
        else:
            assert killed
        number += 3
