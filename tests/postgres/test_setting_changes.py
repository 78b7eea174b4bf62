"""Changes of shared settings are audited; per-instance settings are not."""

from collections.abc import Callable
from typing import Any

from tests.support.postgres import Home
from tests.support.server import Server

Make = Callable[..., Server]


def setting_changes(database: Home) -> list[Any]:
    return database.look("SELECT target, detail::json FROM events WHERE action = 'setting.changed' ORDER BY seq")


def test_shared_setting_change_is_audited_once_and_per_instance_ones_are_not(database: Home, make_server: Make) -> None:
    make_server(env=database.env)
    make_server("--workers", "2", "--log-level", "warning", "--database-pool", "3", env=database.env)
    assert setting_changes(database) == []
    for _ in range(2):
        make_server("--max-live-tokens", "77", env=database.env)
    assert setting_changes(database) == [("WATCHWORD_MAX_LIVE_TOKENS", {"before": "10000", "after": "77"})]
