"""A failing background task is logged, reported by the health check and restarted."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.support.server import Server
from tests.support.store_file import change_store, look
from tests.support.waiting import until
from watchword.basics.background import BackgroundTasks

MakeServer = Callable[..., Server]


def test_failing_task_is_reported_and_restarted(make_server: MakeServer) -> None:
    server = make_server()
    assert server.http.get("/health/ready").json()["status"] == "ready"
    change_store(server, "ALTER TABLE events RENAME TO misplaced")
    assert server.verify("no token").status_code == 401

    reading = {"expiry", "rejections", "webhooks"}  # the tasks that read or write events
    maybe = {*reading, "purge of events"}  # prunes events at the start, and again after minutes
    until(lambda: {line["task"] for line in failures(server)} >= reading, "they have failed")
    until(lambda: health(server)["status"] == "degraded", "that is shown")
    assert server.http.get("/health/ready").status_code == 200
    background = health(server)["parts"]["background"]
    assert background["status"] == "degraded"
    assert reading <= set(background["failing"]) <= maybe
    assert "no such table" in failures(server)[0]["cause"]

    change_store(server, "ALTER TABLE misplaced RENAME TO events")
    refused = "SELECT count(*) FROM events WHERE action = 'authentication.failed'"
    until(lambda: look(server, refused) == [(1,)], "the refusal of before is written")


def test_purge_that_fails_is_reported_and_does_not_stop_the_others(make_server: MakeServer) -> None:
    server = make_server()
    server.stop()
    change_store(server, "ALTER TABLE retries RENAME TO misplaced")
    session = "INSERT INTO sessions (id, actor_urn, created_at, ends_at) VALUES ('old', 'urn:li:corpuser:a', 1, 2)"
    change_store(server, session)
    server.start()
    until(lambda: look(server, "SELECT id FROM sessions") == [], "what is purged later is purged")
    name = "purge of idempotency records"
    assert {line["task"]: "no such table" in line["cause"] for line in failures(server)} == {name: True}
    assert health(server)["parts"]["background"]["failing"] == [name]
    assert server.samples()[f'watchword_background_failures_total{{task="{name}"}}'] >= 1


def failures(server: Server) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.err.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "background task failed"]


def health(server: Server) -> Any:
    return server.http.get("/health/ready").json()


def test_task_is_restarted_after_any_error_until_cancelled() -> None:
    told: list[tuple[str, str]] = []
    counted: list[str] = []
    started: list[int] = []

    async def run_and_cancel() -> None:
        loops = BackgroundTasks(lambda name, why: told.append((name, why)), counted.append)
        runs = asyncio.Event()

        async def loop() -> None:
            started.append(len(started))
            if len(started) == 1:
                raise KeyError("a row")
            runs.set()
            await asyncio.sleep(3_600)

        kept = asyncio.ensure_future(loops.keep_running("example", loop))
        await runs.wait()
        assert loops.failing == ["example"]
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)
        assert kept.cancelled()

    asyncio.run(run_and_cancel())
    assert started == [0, 1]
    assert told == [("example", "KeyError: 'a row'")]
    assert counted == ["example"]
