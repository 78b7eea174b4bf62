"""10,000 tokens from a real MariaDB and a real PostgreSQL, into each store, beside a running service."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.datahub_rows import (
    DataHub,
    aspect,
    datahub_in_mariadb,
    datahub_in_postgres,
    new_token,
    person,
    token_row,
)
from tests.support.datahub_tokens import SALT, DataHubToken, datahub_token
from tests.support.mariadb import Mariadb, shared_mariadb
from tests.support.pages import ROOT
from tests.support.postgres import DEBIAN, Address, Home, programs
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, Server, watchword

NUMBER = 10_000
PEOPLE = [f"urn:li:corpuser:user{number}" for number in range(200)]
SUSPENDED, REMOVED = PEOPLE[0], PEOPLE[1]
SAMPLE = 100


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Mariadb:
    return shared_mariadb(tmp_path_factory)


@pytest.fixture(params=["mariadb to sqlite", "postgres to postgres"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[DataHub, dict[str, str]]]:
    """DataHub's database, and the settings of the store."""
    if request.param == "mariadb to sqlite":
        with datahub_in_mariadb(request.getfixturevalue("mariadb")) as source:
            yield source, {}
        return
    address: Address = request.getfixturevalue("postgres")
    store: Home = request.getfixturevalue("database")
    with datahub_in_postgres(address) as source:
        yield source, store.env


def seed(source: DataHub, number: int) -> list[DataHubToken]:
    made = [new_token(PEOPLE[index % len(PEOPLE)]) for index in range(number)]
    statuses: dict[str, dict[str, Any]] = {
        SUSPENDED: {"corpUserStatus": {"status": "SUSPENDED", "lastModified": {"time": 1, "actor": ADMIN}}},
        REMOVED: {"status": {"removed": True}},
    }
    rows = [row for urn in PEOPLE for row in person(urn, **statuses.get(urn, {}))]
    rows += [row for _, row in made]
    rows += [aspect(made[0][0].urn, "dataHubAccessTokenInfo", {"name": "an old version"}, version=1)]
    rows += [aspect(f"urn:li:dataset:({number})", "status", {"removed": False}) for number in range(1_000)]
    random.shuffle(rows)
    source.add(rows)
    return [token for token, _ in made]


@pytest.mark.parametrize("sample", [SAMPLE, pytest.param(NUMBER, marks=pytest.mark.soak)])
def test_ten_thousand_tokens_come_survive_a_kill_and_follow_datahub(
    pair: tuple[DataHub, dict[str, str]], make_server: Callable[..., Server], tmp_path: Path, sample: int
) -> None:
    source, store = pair
    tokens = seed(source, NUMBER)
    env = {"WATCHWORD_DATAHUB_SALT": SALT, "WATCHWORD_DATAHUB_URL": source.url, **store}
    server = make_server("--local-mode", "on", env=env)

    def total() -> int:
        number: int = server.tokens(count=0)["total"]
        return number

    # Killed in the middle: what has come is whole, nobody is revived, and the next run brings the rest.
    words = ("import", "datahub", "--data-dir", str(server.data_dir))
    command = [sys.executable, "-m", "watchword", *words]
    clean = without_settings()
    with (tmp_path / "killed.log").open("wb") as log:
        killed = subprocess.Popen(command, env=clean | env, stdout=log, stderr=log)
    # It is stopped while we look, or it could end before we have seen it.
    while not total():
        assert killed.poll() is None, (tmp_path / "killed.log").read_text()
        killed.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        killed.send_signal(signal.SIGSTOP)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert 0 < total() < NUMBER
    dead = [token for token in tokens if token.actor in (SUSPENDED, REMOVED)]
    assert {server.verify(token.token).status_code for token in dead[:20]} == {401}

    done = run(words, env)
    assert total() == NUMBER
    assert done["tokens", "new"] + done["tokens", "unchanged"] == NUMBER
    assert {server.verify(token.token).status_code for token in dead[:20]} == {401}
    live = [token for token in tokens if token.actor not in (SUSPENDED, REMOVED)]
    chosen = random.sample(live, min(sample, len(live)))
    assert {server.verify(token.token).status_code for token in chosen} == {204}
    listed = server.tokens(ADMIN, [{"field": "actorUrn", "value": PEOPLE[7]}], count=1_000)
    assert {one["id"] for one in listed["tokens"]} == {token.id for token in tokens if token.actor == PEOPLE[7]}
    asker = server.create(ADMIN)["accessToken"]
    for token in chosen:
        told = server.http.post(
            "/oauth2/introspect", data={"token": token.token}, headers={"Authorization": f"Bearer {asker}"}
        ).json()
        assert (told["active"], told["sub"], told["jti"]) == (True, token.actor, token.id)

    # A revocation in either counts here.
    here, there, kept, *others = chosen
    assert server.revoke(here.id)
    source.delete(there.urn)
    done = run(words, env)
    assert done["tokens", "revoked"] == 1
    assert done["tokens", "conflict"] == 1
    assert [server.verify(token.token).status_code for token in (here, there, kept)] == [401, 401, 204]
    checked = watchword("db", "check", "--data-dir", str(server.data_dir), env=env)
    assert checked.returncode == 0, checked.stdout
    assert all(server.revoke(token.id) for token in others)
    assert {server.verify(token.token).status_code for token in others} == {401}


def test_export_commands_of_the_page_write_what_the_import_reads(
    pair: tuple[DataHub, dict[str, str]], tmp_path: Path
) -> None:
    source, _ = pair
    url = urlsplit(source.url)
    tricky = 'a "quoted" \\ name,\nin two lines: \U0001f511'
    token = datahub_token(PEOPLE[5])
    source.add([*person(PEOPLE[5]), token_row(token, name=tricky)])
    page = (ROOT / "docs/how-to/come-from-datahub.md").read_text()
    program = "mariadb" if url.scheme == "mysql" else "psql"
    (command,) = re.findall(rf"^```bash\n({program} .*?)^```$", page, re.MULTILINE | re.DOTALL)
    password = "" if url.password is None else unquote(url.password)
    (tmp_path / ".my.cnf").write_text(
        f'[client]\nhost=127.0.0.1\nport={url.port}\nuser={url.username}\npassword="{password}"\n'
    )
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(url.port), "PGUSER": str(url.username), "HOME": str(tmp_path)}
    path = f"{programs(DEBIAN)}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", command.replace(" datahub >", f" {url.path[1:]} >")],
        cwd=tmp_path, env=where | {"PATH": path}, check=True,
    )  # fmt: skip
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "d")).returncode == 0
    words = ("import", "datahub", "--data-dir", str(tmp_path / "d"), "--from", str(tmp_path / "datahub.jsonl"))
    assert run(words, {})["tokens", "new"] == 1
    with closing(sqlite3.connect(tmp_path / "d" / "watchword.db")) as file:
        assert file.execute("SELECT id, name FROM tokens").fetchall() == [(token.id, " ".join(tricky.split()))]


def run(words: tuple[str, ...], env: dict[str, str]) -> dict[tuple[str, str], int]:
    done = watchword(*words, "--json", env=env)
    assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], int] = {}
    line: dict[str, Any]
    for line in json.loads(done.stdout)["lines"]:
        key = (line["what"], line["outcome"])
        found[key] = found.get(key, 0) + line["count"]
    return found
