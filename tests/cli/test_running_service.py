"""Local commands with other settings or another folder than the running service."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server

PUBLIC = "https://tokens.example.org"


def claims(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def findings(done: Any) -> dict[str, str]:
    return {found["about"]: f"{found['level']} {found['what']}" for found in json.loads(done.stdout)}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_token_made_locally_names_the_issuer_of_the_running_service(
    kind: str, request: pytest.FixtureRequest, make_server: Callable[..., Server], tmp_path: Path
) -> None:
    database: Home | None = request.getfixturevalue("database") if kind == "postgres" else None
    env = {} if database is None else database.env
    words = ("token", "create", "--local", "--actor", ADMIN, "--data-dir", str(tmp_path / "server0" / "data"))
    assert watchword("db", "migrate", *words[-2:], env=env).returncode == 0
    before = watchword(*words, env=env)  # no service was ever started: its own settings apply
    assert claims(before.stdout)["iss"] == "http://127.0.0.1:8080"
    server = make_server("--public-url", PUBLIC, env=env)
    made = watchword(*words, env=env)
    assert (claims(made.stdout)["iss"], claims(made.stdout)["aud"]) == (PUBLIC, PUBLIC)
    assert server.verify(made.stdout.strip()).status_code == 204


def test_doctor_judges_the_running_service_by_its_answer(make_server: Callable[..., Server], server: Server) -> None:
    """Without the service's settings, doctor would see local mode on and another address."""
    running = make_server("--public-url", PUBLIC)
    done = running.command_line("doctor", "--json")
    assert done.returncode == 0, done.stdout
    found = findings(done)
    assert found["port"].startswith("ok the running service is Watchword ")
    assert found["port"].endswith(f"answers at {running.url} as {PUBLIC}")
    assert found["exposure"] == "ok the running service is not in local mode, or runs as another user"
    assert "server" not in found
    other = findings(running.command_line("doctor", "--json", env={"WATCHWORD_URL": server.url}))
    assert other["server"] == (
        f"warn WATCHWORD_URL, {server.url}, is the service {server.url}; this store's is {PUBLIC}"
    )
    local = findings(server.command_line("doctor", "--json", env={"WATCHWORD_URL": server.url}))
    assert local["exposure"].startswith("ok the running service is in local mode")
    assert local["server"].startswith("ok Watchword ")


def test_in_the_wrong_folder_the_error_names_it_and_the_server_that_uses_another(
    server: Server, tmp_path: Path
) -> None:
    for words in (["key", "list"], ["token", "create", "--local"], ["db", "check"], ["db", "backup", "b.db"]):
        done = watchword(*words, cwd=tmp_path, env={"WATCHWORD_URL": server.url})
        assert (done.returncode, done.stdout) == (1, "")
        assert f"There is no store at {tmp_path}/watchword-data/watchword.db." in done.stderr
        assert (
            f"The server at {server.url} uses another store. Name the service's folder with --data-dir" in done.stderr
        )
        assert "migrate" not in done.stderr  # a second store is not suggested
    done = watchword("key", "list", cwd=tmp_path, env={"WATCHWORD_URL": "http://127.0.0.1:1"})
    assert done.stderr.endswith("To create a new store there: watchword db migrate\n")
    assert list(tmp_path.iterdir()) == []
