"""Instances on one database: what is each one's own is no change; what they share is told when it changes."""

from collections.abc import Callable
from typing import Any

from tests.support.postgres import Home
from tests.support.server import Server

Make = Callable[..., Server]


def changes(database: Home) -> list[Any]:
    return database.look("SELECT target, detail::json FROM events WHERE action = 'setting.changed' ORDER BY seq")


def test_what_instances_have_of_their_own_is_no_change_and_what_they_share_is_told_once(
    database: Home, make_server: Make
) -> None:
    make_server(env=database.env)
    make_server("--workers", "2", "--log-level", "warning", "--database-pool", "3", env=database.env)
    assert changes(database) == []
    for _ in range(2):
        make_server("--max-live-tokens", "77", env=database.env)
    assert changes(database) == [("WATCHWORD_MAX_LIVE_TOKENS", {"before": "10000", "after": "77"})]
