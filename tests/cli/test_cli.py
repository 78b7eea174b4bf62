"""The command line: exit codes, one-line errors, help, and local commands on the store."""

import json
import os
import re
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import jwt
import psutil
import pytest

from tests.cli.in_process import watchword
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store
from tests.support.waiting import SECONDS, until
from watchword.client import Client
from watchword.database.migrations import latest


@pytest.fixture
def folder(migrated: Path, tmp_path: Path) -> Path:
    """A data folder with a store in it."""
    return shutil.copytree(migrated, tmp_path / "d")


# test_help.py checks without a process that every command has an example.
@pytest.mark.parametrize("words", [("serve",), ("db",), ("token", "create")], ids=" ".join)
def test_command_and_a_group_of_them_show_their_help(words: tuple[str, ...]) -> None:
    done = watchword(*words, "--help")
    assert done.returncode == 0
    assert words == ("db",) or "Example: watchword" in done.stdout


def test_unknown_command_is_a_usage_error() -> None:
    done = watchword("tokn")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_local_token_works_on_a_server_without_local_mode(make_server: Callable[..., Server]) -> None:
    server = make_server(env={"WATCHWORD_LOCAL_MODE": "off"})
    assert server.post("{ me { corpUser { urn } } }", actor=ADMIN).status_code == 401

    made = server.command_line("token", "create", "--local", "--name", "first")

    assert made.returncode == 0
    token = made.stdout.strip()
    assert server.ask("{ me { corpUser { urn } } }", token=token)["me"]["corpUser"]["urn"] == ADMIN


def test_token_create_prints_json_when_asked(folder: Path) -> None:
    done = watchword("token", "create", "--local", "--json", "--duration", "ONE_DAY", "--data-dir", str(folder))
    shown = json.loads(done.stdout)
    assert set(shown) >= {"accessToken", "id", "actorUrn", "expiresAt"}
    claims = jwt.decode(shown["accessToken"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 86_400
    assert claims["sub"] == ADMIN


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--actor", "urn:li:corpGroup:ops"), "--actor"),
        (("--actor", "urn:li:corpuser:__system"), "--actor"),
        (("--name", ""), "--name"),
        (("--duration", "NO_EXPIRY"), "NO_EXPIRY"),
        (("--description", "x" * 1001), "--description"),
    ],
)
def test_bad_local_token_is_rejected_in_one_line(folder: Path, flags: tuple[str, ...], named: str) -> None:
    done = watchword("token", "create", "--local", *flags, "--data-dir", str(folder))
    assert done.returncode == 1
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_data_folder_and_what_is_in_it_are_for_the_owner_alone(folder: Path) -> None:
    assert watchword("token", "create", "--local", "--data-dir", str(folder)).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_migrate_says_what_it_did_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    first = watchword("db", "migrate", "--data-dir", str(tmp_path / "d"))
    second = watchword("db", "migrate", "--data-dir", str(tmp_path / "d"))
    assert (first.returncode, first.stdout) == (0, f"Created the database with schema {latest('sqlite')}.\n")
    assert (second.returncode, second.stdout) == (0, f"The database has schema {latest('sqlite')}.\n")


def test_check_is_clean_on_a_running_server(server: Server) -> None:
    made = server.create(ADMIN)
    server.revoke(made["metadata"]["id"])
    done = server.command_line("db", "check")
    assert done.returncode == 0, done.stdout
    assert "BAD" not in done.stdout


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that created two tokens and revoked one."""
    with Server(tmp_path_factory.mktemp("used")) as server:
        server.create(ADMIN)
        server.revoke(server.create(ADMIN)["metadata"]["id"])
    return server.folder


@pytest.mark.parametrize(
    ("harm", "law"),
    [
        ("UPDATE token_totals SET total = total + 1 WHERE kind = 'all'", "the total of tokens"),
        ("UPDATE token_totals SET total = 0 WHERE kind = 'actor'", "the totals per actor"),
        ("DELETE FROM events WHERE action = 'token.revoked'", "every revocation has its event"),
        ("DELETE FROM token_totals WHERE kind = 'owner'", "the totals per owner"),
        ("UPDATE keys SET retired_at = 1", "exactly one key is in use"),
        ("UPDATE next_key SET kid = (SELECT kid FROM keys)", "the next key has not signed yet"),
    ],
)
def test_check_finds_what_is_wrong(used: Path, tmp_path: Path, harm: str, law: str) -> None:
    server = Server(shutil.copytree(used, tmp_path / "used"))
    change_store(server, harm)

    done = server.command_line("db", "check")

    assert done.returncode == 1
    assert any(line.startswith("BAD") and law in line for line in done.stdout.splitlines()), done.stdout


def test_check_without_a_store_says_so(tmp_path: Path) -> None:
    done = watchword("db", "check", "--data-dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "There is no store" in done.stderr
    assert not (tmp_path / "none").exists()


def test_keys_rotate_and_list(folder: Path) -> None:
    where = ("--data-dir", str(folder))
    watchword("token", "create", "--local", *where)
    before = json.loads(watchword("key", "list", "--json", *where).stdout)
    assert watchword("key", "rotate", *where).returncode == 0
    after = json.loads(watchword("key", "list", "--json", *where).stdout)
    assert [key["state"] for key in before] == ["signs", "next"]
    assert [key["state"] for key in after] == ["signs", "retired", "next"]
    assert [after[0]["kid"], after[1]["kid"]] == [before[1]["kid"], before[0]["kid"]]
    assert after[0]["retiredAt"] is None
    assert after[1]["publishedUntil"] > after[1]["retiredAt"]


def test_another_master_key_is_rejected(folder: Path, tmp_path: Path) -> None:
    watchword("token", "create", "--local", "--data-dir", str(folder))
    watchword("db", "migrate", "--data-dir", str(tmp_path / "other"))
    (folder / "master.key").write_bytes((tmp_path / "other" / "master.key").read_bytes())
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "another master key" in done.stderr
    assert "Traceback" not in done.stderr


def test_master_key_that_others_can_read_is_rejected(folder: Path) -> None:
    (folder / "master.key").chmod(0o644)
    done = watchword("key", "list", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "chmod 600" in done.stderr


def test_named_missing_master_key_is_not_created(tmp_path: Path) -> None:
    done = watchword("serve", "--data-dir", str(tmp_path / "d"), "--master-key-file", str(tmp_path / "no.key"))
    assert done.returncode == 1
    assert "There is no master key" in done.stderr


def test_store_from_a_newer_version_is_rejected(folder: Path) -> None:
    with sqlite3.connect(folder / "watchword.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "version 99" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_doctor_finding_about_a_newer_store_ends_with_one_full_stop(folder: Path) -> None:
    with sqlite3.connect(folder / "watchword.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    done = watchword("doctor", "--data-dir", str(folder), "--port", str(free_port()))
    assert "version 99" in done.stdout
    assert ".." not in done.stdout


def test_server_runs_if_its_start_output_is_not_read(tmp_path: Path) -> None:
    server = Server(tmp_path / "s")
    reading, writing = os.pipe()
    os.close(reading)
    with server.err.open("wb") as err:
        process = subprocess.Popen(server.command, stdout=writing, stderr=err, start_new_session=True)
    server.process = process
    os.close(writing)
    given_up = Path(f"/proc/{process.pid}/fd/1")
    try:
        until(
            lambda: given_up.resolve() == Path(os.devnull) or server.err.stat().st_size > 0,
            "it could not say its lines",
        )
        assert server.http.get("/health").status_code == 200
    finally:
        server.http.close()
        code = server.stop()
    assert (code, server.err.read_text()) == (0, "")


def test_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = watchword("serve", "--port", port, "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: Address already in use" in done.stderr
    other = re.search(r"watchword serve --port (\d+), or WATCHWORD_PORT=(\d+) make serve", done.stderr)
    assert other is not None
    assert other[1] == other[2] != port


def test_serve_prints_where_commands_find_it_unless_they_look_there_anyway(server: Server) -> None:
    (line,) = [line for line in server.out.read_text().splitlines() if "export WATCHWORD_URL=" in line]
    shell = f"{line.removeprefix('  commands    ')} && {sys.executable} -m watchword whoami --as admin"
    assert ADMIN in subprocess.run(["bash", "-c", shell], capture_output=True, check=True, text=True).stdout


def test_example_that_serve_prints_works(server: Server) -> None:
    printed = server.out.read_text()
    example = printed[printed.index("curl") :]
    answer = json.loads(subprocess.run(["bash", "-c", example], capture_output=True, check=True).stdout)
    assert server.verify(answer["data"]["createAccessToken"]["accessToken"]).status_code == 204


@pytest.mark.parametrize("words", [("key", "rotate"), ("key", "list"), ("token", "create", "--local"), ("db", "check")])
def test_mistyped_folder_does_not_become_a_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = watchword(*words, "--data-dir", str(tmp_path / "typo"))
    assert done.returncode == 1
    assert "There is no store at" in done.stderr
    assert not (tmp_path / "typo").exists()


def test_lost_master_key_is_not_replaced(folder: Path) -> None:
    assert watchword("token", "create", "--local", "--data-dir", str(folder)).returncode == 0
    (folder / "master.key").unlink()
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "There is no master key" in done.stderr
    assert not (folder / "master.key").exists()


def test_master_key_that_never_ends_is_rejected(folder: Path) -> None:
    done = watchword("key", "list", "--data-dir", str(folder), "--master-key-file", "/dev/zero")
    assert done.returncode == 1


@pytest.mark.parametrize(("name", "mode"), [(".", 0o777), ("watchword.db", 0o644), ("watchword.db", 0o620)])
def test_files_accessible_to_others_are_rejected_with_a_fix(folder: Path, name: str, mode: int) -> None:
    (folder / name).chmod(mode)
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "Run: chmod" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("damage", [b"not a database at all, but long enough to be read as one" * 40, b""])
def test_check_of_a_damaged_file_says_so_without_a_traceback(folder: Path, damage: bytes) -> None:
    (folder / "watchword.db").write_bytes(damage)
    done = watchword("db", "check", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "BAD" in done.stdout


def test_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = watchword("serve", "--data-dir", str(tmp_path / "file"))
    assert done.returncode == 1
    assert "WATCHWORD_DATA_DIR" in done.stderr


def test_foreign_listen_address_is_named(tmp_path: Path) -> None:
    done = watchword("serve", "--host", "192.0.2.1", "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 1
    assert "--host" in done.stderr


def test_service_runs_with_read_or_unread_start_output(tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "watchword", "serve", "--port", str(port), "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(["bash", "-c", 'exec "$@" >&-', "bash", *words], stderr=subprocess.PIPE) as running:
        try:
            until(lambda: answers(port) or running.poll() is not None, "it listens")
            with Client(f"http://127.0.0.1:{port}", actor=ADMIN) as client:
                assert client.me().urn == ADMIN
        finally:
            running.terminate()
    assert running.returncode == 0


def answers(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_token_that_can_neither_be_printed_nor_revoked_is_named(folder: Path) -> None:
    """The pipe is full, so the command waits to print; meanwhile its store disappears, then its reader."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b" " * 4096):
            pass
    os.set_blocking(writing, True)
    command = [sys.executable, "-m", "watchword", "token", "create", "--local", "--data-dir", str(folder)]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as creating:
        os.close(writing)
        process = psutil.Process(creating.pid)
        until(
            lambda: bool(token_ids(folder)) and not any(f.path.startswith(str(folder)) for f in process.open_files()),
            "it has made a token and closed the store",
        )
        made = token_ids(folder)
        folder.rename(folder.parent / "elsewhere")
        os.close(reading)
        _, said = creating.communicate(timeout=SECONDS)
    assert creating.returncode == 1
    (line,) = said.splitlines()
    assert line.endswith(f"watchword token revoke {made[0]}")


def token_ids(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "watchword.db")) as db:
        return [row[0] for row in db.execute("SELECT id FROM tokens")]
