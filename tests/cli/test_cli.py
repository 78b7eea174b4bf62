"""The command line: exit codes, one-line errors, help with examples, and what it does to the store."""

import json
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest

from tests.support.server import ADMIN, Server, watchword

COMMANDS = [
    ("serve",), ("token",), ("token", "create"), ("db",), ("db", "migrate"), ("db", "check"),
    ("keys",), ("keys", "list"), ("keys", "rotate"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    done = watchword(*words, "--help")
    assert done.returncode == 0
    is_group = words in {("token",), ("db",), ("keys",)}
    assert is_group or "Example: watchword" in done.stdout


def test_an_unknown_command_is_wrong_use() -> None:
    done = watchword("tokn")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_local_token_works_on_a_server_without_local_mode(make_server: Callable[..., Server]) -> None:
    server = make_server(env={"WATCHWORD_LOCAL_MODE": "off"})
    assert server.post("{ me { corpUser { urn } } }", actor=ADMIN).status_code == 401

    made = server.command_line("token", "create", "--local", "--name", "first")

    assert made.returncode == 0
    token = made.stdout.strip()
    assert server.ask("{ me { corpUser { urn } } }", token=token)["me"]["corpUser"]["urn"] == ADMIN


def test_token_create_prints_json_when_asked(tmp_path: Path) -> None:
    done = watchword("token", "create", "--local", "--json", "--duration", "ONE_DAY", "--data-dir", str(tmp_path / "d"))
    shown = json.loads(done.stdout)
    assert set(shown) == {"accessToken", "id", "expiresAt"}
    claims = jwt.decode(shown["accessToken"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 86_400
    assert claims["sub"] == ADMIN


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--actor", "alice"), "--actor"),
        (("--actor", "urn:li:corpuser:__system"), "--actor"),
        (("--name", ""), "--name"),
        (("--duration", "NO_EXPIRY"), "NO_EXPIRY"),
        (("--description", "x" * 1001), "--description"),
    ],
)
def test_a_bad_local_token_is_refused_in_one_line(tmp_path: Path, flags: tuple[str, ...], named: str) -> None:
    done = watchword("token", "create", "--local", *flags, "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 1
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_the_data_folder_and_what_is_in_it_are_for_the_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    assert watchword("token", "create", "--local", "--data-dir", str(folder)).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_migrate_says_what_it_did_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    first = watchword("db", "migrate", "--data-dir", str(tmp_path / "d"))
    second = watchword("db", "migrate", "--data-dir", str(tmp_path / "d"))
    assert (first.returncode, first.stdout) == (0, "Schema version 0 -> 1.\n")
    assert (second.returncode, second.stdout) == (0, "Schema version 1.\n")


def test_check_is_clean_on_a_running_server(server: Server) -> None:
    made = server.create(ADMIN)
    server.revoke(made["metadata"]["id"])
    done = server.command_line("db", "check")
    assert done.returncode == 0, done.stdout
    assert "BAD" not in done.stdout


@pytest.mark.parametrize(
    ("harm", "law"),
    [
        ("UPDATE token_totals SET total = total + 1 WHERE kind = 'all'", "the total of tokens"),
        ("UPDATE token_totals SET total = 0 WHERE kind = 'actor'", "the totals per actor"),
        ("DELETE FROM events WHERE action = 'token.revoked'", "every revocation has its event"),
        ("DELETE FROM token_totals WHERE kind = 'owner'", "the totals per owner"),
        ("UPDATE keys SET retired_at = 1", "just one key is in use"),
    ],
)
def test_check_finds_what_is_wrong(make_server: Callable[..., Server], harm: str, law: str) -> None:
    server = make_server()
    for index in range(2):
        made = server.create(ADMIN)
        if index:
            server.revoke(made["metadata"]["id"])
    server.stop()
    with sqlite3.connect(server.data_dir / "watchword.db") as db:
        db.execute(harm)
    db.close()

    done = server.command_line("db", "check")

    assert done.returncode == 1
    assert any(line.startswith("BAD") and law in line for line in done.stdout.splitlines()), done.stdout


def test_check_without_a_store_says_so(tmp_path: Path) -> None:
    done = watchword("db", "check", "--data-dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "There is no store" in done.stderr
    assert not (tmp_path / "none").exists()


def test_keys_rotate_and_list(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "d"))
    watchword("token", "create", "--local", *folder)
    before = json.loads(watchword("keys", "list", "--json", *folder).stdout)
    assert watchword("keys", "rotate", *folder).returncode == 0
    after = json.loads(watchword("keys", "list", "--json", *folder).stdout)
    assert [key["kid"] for key in after][1:] == [key["kid"] for key in before]
    assert after[0]["retiredAt"] is None
    assert after[1]["publishedUntil"] > after[1]["retiredAt"]


def test_another_master_key_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    watchword("token", "create", "--local", "--data-dir", str(folder))
    watchword("token", "create", "--local", "--data-dir", str(tmp_path / "other"))
    (folder / "master.key").write_bytes((tmp_path / "other" / "master.key").read_bytes())
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "another master key" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_master_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    watchword("token", "create", "--local", "--data-dir", str(folder))
    (folder / "master.key").chmod(0o644)
    done = watchword("keys", "list", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "chmod 600" in done.stderr


def test_a_missing_master_key_is_not_made_anew_when_it_was_named(tmp_path: Path) -> None:
    done = watchword("serve", "--data-dir", str(tmp_path / "d"), "--master-key-file", str(tmp_path / "no.key"))
    assert done.returncode == 1
    assert "There is no master key" in done.stderr


def test_a_store_from_a_newer_version_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    watchword("db", "migrate", "--data-dir", str(folder))
    with sqlite3.connect(folder / "watchword.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    done = watchword("serve", "--data-dir", str(folder))
    assert done.returncode == 1
    assert "version 99" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = watchword("serve", "--port", port, "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 2
    assert port in done.stderr


def test_the_example_that_serve_prints_works(server: Server) -> None:
    printed = server.out.read_text()
    example = printed[printed.index("curl") :]
    answer = json.loads(subprocess.run(["bash", "-c", example], capture_output=True, check=True).stdout)
    assert server.verify(answer["data"]["createAccessToken"]["accessToken"]).status_code == 204
