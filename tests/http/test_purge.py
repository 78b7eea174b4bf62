"""Tokens that ended long ago are purged; holders of live tokens do not notice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.clock import SetClock
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server, watchword
from tests.support.strategies import numbered_id
from tests.support.waiting import until

DAY = 86_400
ALL = [{"field": "status", "condition": "EXISTS"}]
DEAD = 1_200


def names(server: Server) -> set[str]:
    return {token["name"] for token in server.tokens(filters=ALL, count=1_000)["tokens"]}


def rejection_reason(server: Server, token: str) -> str:
    """Return the reason with which a dead token is rejected."""
    answer = server.verify(token)
    assert answer.status_code == 401
    reason: str = answer.json()["error"]["reason"]
    return reason


def restart(server: Server) -> None:
    """A worker purges first when it starts, while it serves requests."""
    server.stop()
    server.start()


def test_token_is_purged_after_the_configured_days(make_server: Callable[..., Server], tmp_path: Path) -> None:
    clock = SetClock(tmp_path / "clock")
    server = make_server(env=clock.env)
    made = {name: server.create(ADMIN, name=name) for name in ("expired", "revoked")}
    made["live"] = server.create(ADMIN, name="live", duration="ONE_YEAR")
    server.revoke(made["revoked"]["metadata"]["id"])
    clock.advance(2 * DAY)
    made["expired later"] = server.create(ADMIN, name="expired later")
    made["revoked later"] = server.create(ADMIN, name="revoked later", duration="ONE_YEAR")
    server.revoke(made["revoked later"]["metadata"]["id"])
    clock.advance(89 * DAY)

    restart(server)

    until(lambda: names(server) == {"live", "expired later", "revoked later"}, "the long dead are gone")
    assert server.verify(made["live"]["accessToken"]).status_code == 204
    answers = {name: rejection_reason(server, one["accessToken"]) for name, one in made.items() if name != "live"}
    assert answers == {
        "expired": "invalid_token",
        "revoked": "invalid_token",
        "expired later": "token_expired",
        "revoked later": "token_revoked",
    }
    # The stored total of unrevoked tokens equals their count.
    assert server.tokens()["total"] == 2
    checked = server.command_line("db", "check", env=clock.env)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    server.stop()
    stricter = make_server("--dead-token-days", "88", folder=server.folder, env=clock.env)
    until(lambda: names(stricter) == {"live"}, "those that ended 89 days ago are gone too")


def test_purge_of_many_tokens_does_not_stop_verification(database: Home, tmp_path: Path) -> None:
    server = Server(tmp_path / "server", "--local-mode", "on", "--workers", "2", env=database.env)
    with server:
        live = server.create(ADMIN, name="live")["accessToken"]
        _insert_expired(database, DEAD)
        assert server.tokens(count=0)["total"] == 1 + DEAD
        restart(server)
        until(lambda: _verified(server, live) and server.tokens(count=0)["total"] == 1, "the dead are gone")
        assert names(server) == {"live"}
        checked = watchword("db", "check", env=database.env)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def _verified(server: Server, token: str) -> bool:
    assert server.verify(token).status_code == 204
    return True


def _insert_expired(database: Home, count: int) -> None:
    """Insert tokens that expired a hundred days ago."""
    end = time.time_ns() // 1_000_000 - 100 * DAY * 1_000
    rows: list[tuple[Any, ...]] = [
        (numbered_id(number), "PERSONAL", f"dead {number}", ADMIN, ADMIN, end - 1, end) for number in range(count)
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            rows,
        )
