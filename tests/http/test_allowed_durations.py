"""Callers can list the lifetimes that a new token may have."""

from pathlib import Path

from tests.support.server import Server

DURATIONS = "{ allowedDurations }"


def test_every_caller_can_list_allowed_durations(tmp_path: Path) -> None:
    with Server(tmp_path, "--allowed-durations", "ONE_DAY,ONE_HOUR", "--allow-no-expiry", "on") as server:
        told = server.ask(DURATIONS, actor="urn:li:corpuser:nobody")["allowedDurations"]
    assert told == ["ONE_HOUR", "ONE_DAY", "NO_EXPIRY"]
