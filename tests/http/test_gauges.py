"""Gauges in `/metrics`: what one worker counts for all, and whether the store can be written to."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import closing

import apsw
import pytest

from bench.fill import fill
from tests.support.server import ADMIN, Server
from tests.support.store_file import locked
from tests.support.waiting import until
from watchword import __version__

DAY = 86_400_000
SUSPENDED = "urn:li:corpuser:filled00001"
LIVE: dict[str, object] = {"field": "effectiveStatus", "values": ["ACTIVE"]}
UNTIL: dict[str, object] = {"field": "expiresAt", "condition": "LESS_THAN_OR_EQUAL_TO"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two workers on 400 tokens."""
    now = time.time_ns() // 1_000_000
    server = Server(tmp_path_factory.mktemp("counted"), "--workers", "2")
    server.data_dir.mkdir(mode=0o700)
    file = server.data_dir / "watchword.db"
    fill(file, 400, now=now - 100 * DAY, actors=20)
    with closing(apsw.Connection(str(file))) as store:
        store.execute("UPDATE tokens SET expires_at = NULL WHERE id IN (SELECT id FROM tokens ORDER BY id LIMIT 17)")
        store.execute("UPDATE tokens SET last_used_at = ? WHERE id IN (SELECT id FROM tokens LIMIT 29)", (now,))
        store.execute("INSERT INTO actors (urn, status) VALUES (?, 'SUSPENDED')", (SUSPENDED,))
    with server:
        yield server


def total(server: Server, *filters: dict[str, object]) -> int:
    return int(server.tokens(ADMIN, list(filters), count=0)["total"])


def test_gauges_equal_the_totals_of_lists(counted: Server) -> None:
    until(lambda: 'watchword_tokens_unused{days="90"}' in counted.samples(), "all are counted")
    samples, now = counted.samples(), time.time_ns() // 1_000_000
    expected = {
        "watchword_tokens_live": total(counted, LIVE),
        "watchword_tokens_suspended": total(counted, {**LIVE, "values": ["SUSPENDED"]}),
        "watchword_tokens_never_expiring": total(
            counted, LIVE, {"field": "expiresAt", "condition": "EXISTS", "negated": True}
        ),
        'watchword_tokens_unused{days="90"}': total(
            counted, LIVE, {"field": "lastActivityAt", "condition": "LESS_THAN", "value": str(now - 90 * DAY)}
        ),
    } | {
        f'watchword_tokens_expiring{{days="{days}"}}': total(counted, LIVE, {**UNTIL, "value": str(now + days * DAY)})
        for days in (1, 7, 30)
    }
    assert {name: samples[name] for name in expected} == expected
    assert expected["watchword_tokens_suspended"] > 0
    assert samples['watchword_token_uses{day="today"}'] == 0
    assert 0 < expected["watchword_tokens_never_expiring"] < 17  # some of the 17 are revoked
    assert 0 < expected['watchword_tokens_expiring{days="7"}'] < expected['watchword_tokens_expiring{days="30"}']
    assert 0 < expected['watchword_tokens_unused{days="90"}'] < expected["watchword_tokens_live"]
    for count in ("live", "unused"):
        assert time.time() - samples[f'watchword_tokens_counted_timestamp_seconds{{count="{count}"}}'] < 300


def test_one_worker_of_an_instance_counts(counted: Server) -> None:
    (lock,) = counted.data_dir.glob("run/*/counts.lock")
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_store_that_cannot_be_written_to_is_not_reachable(counted: Server) -> None:
    assert counted.samples()["watchword_store_reachable"] == 1
    with locked(counted):
        until(lambda: counted.samples()["watchword_store_reachable"] == 0, "the probe fails")
    until(lambda: counted.samples()["watchword_store_reachable"] == 1, "the probe succeeds again")


def test_version_is_a_metric(counted: Server) -> None:
    assert counted.samples()[f'watchword_build_info{{version="{__version__}"}}'] == 1


def test_errors_are_counted_by_reason(counted: Server, actor: str) -> None:
    token = counted.create(ADMIN)["accessToken"]
    before = counted.samples()

    def more(samples: dict[str, float]) -> dict[str, float]:
        ours = {name: value - before.get(name, 0) for name, value in samples.items() if "watchword_errors" in name}
        return {name.split('"')[1]: number for name, number in ours.items() if number}

    assert counted.verify("no token").status_code == 401
    assert counted.http.get("/auth").status_code == 401
    required = {"watchword.audience": "elsewhere"}
    denied = counted.http.get("/auth", params=required, headers={"Authorization": f"Bearer {token}"})
    assert denied.status_code == 403
    assert "errors" in counted.post("{ listAccessTokens { total } }", actor=actor).json()
    assert "errors" in counted.post("{ nothing }", actor=actor).json()
    reasons = ("invalid_token", "missing_credential", "wrong_audience", "missing_privilege", "invalid_document")
    expected = dict.fromkeys(reasons, 1.0)
    until(lambda: more(counted.samples()) == expected, f"{expected} are counted")
