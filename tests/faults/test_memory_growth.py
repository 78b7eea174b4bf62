"""A day's work compressed: five million verifications and 200,000 creates and revokes at the same time. Ten equal
parts. In the first half the caches fill; memory after it is the baseline."""

import asyncio
import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from bench.population import Holder, populate
from tests.support.server import CREATE, REVOKE, GraphQLRefused, Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS
from watchword.database.sqlite.database import SCAN_THREADS

VERIFICATIONS = 5_000_000
WRITES = 200_000
TENTHS = 10
TOKENS = 1_000_000
"""So many that the pages of those in use fill the caches."""
VERIFIED = 10_000
WRITERS = 16
SLICE_SECONDS = 5
MOST_GROWTH = 1.02
_WRITTEN = "SELECT count(*), count(revoked_at) FROM tokens WHERE name = 'of the day'"
SCRIPT = Path(__file__).parent.parent / "support" / "verify.lua"


def verify(server: Server, tokens: Path, at_least: int) -> int:
    """In slices, because wrk runs by time; every response must be a success."""
    wrk, count = need_program("wrk", "wrk"), 0
    command = [wrk, "-t1", "-c32", f"-d{SLICE_SECONDS}s", "--timeout", "20s", "-s", str(SCRIPT), server.url]
    while count < at_least:
        done = subprocess.run(
            command,
            env={**os.environ, "TOKENS": str(tokens)},
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        assert told["failed"] == 0, done.stdout
        count += told["requests"]
    return count


class Writer:
    """One kept connection that creates and revokes tokens."""

    def __init__(self, port: int, holder: Holder) -> None:
        self._port, self._holder = port, holder

    async def create_and_revoke(self, pairs: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        wanted = {"type": "PERSONAL", "actorUrn": self._holder.actor, "duration": "ONE_DAY", "name": "of the day"}
        for _ in range(pairs):
            made = await self._ask(reader, writer, CREATE, {"input": wanted})
            token_id = made["createAccessToken"]["metadata"]["id"]
            assert await self._ask(reader, writer, REVOKE, {"id": token_id}) == {"revokeAccessToken": True}
        writer.close()
        await writer.wait_closed()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, query: str, variables: dict[str, Any]
    ) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        lines = ["POST /api/graphql HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {self._holder.token}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        assert "errors" not in answer, answer
        return answer["data"]


async def write(port: int, holders: list[Holder], writes: int) -> None:
    pairs = writes // 2 // len(holders)
    await asyncio.gather(*(Writer(port, holder).create_and_revoke(pairs) for holder in holders))


def memory_by_process(server: Server) -> dict[str, int]:
    """Bytes of the main process and its worker."""
    assert server.process is not None
    (worker,) = server.workers()
    return {
        "main": psutil.Process(server.process.pid).memory_info().rss,
        "worker": worker.memory_info().rss,
    }


def search_at_once(server: Server) -> None:
    """Each thread that searches keeps some pages from then on."""
    sought = [{"field": "name", "condition": "CONTAIN", "value": "no such name"}]
    with ThreadPoolExecutor(SCAN_THREADS) as pool:
        searches = [pool.submit(server.tokens, filters=sought) for _ in range(SCAN_THREADS)]
    for search in searches:
        with suppress(GraphQLRefused):  # it took too long, and has filled its cache
            search.result()


@pytest.mark.soak
def test_memory_does_not_grow_during_a_days_work(tmp_path: Path) -> None:
    population = populate(tmp_path / "data", TOKENS, callers=VERIFIED)
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{holder.token}\n" for holder in population.callers))
    with Server(tmp_path) as server:
        server.grant(allUsers=True)
        search_at_once(server)
        verified, seen = 0, []
        for tenth in range(TENTHS):
            writing = threading.Thread(
                target=lambda: asyncio.run(write(server.port, population.callers[:WRITERS], WRITES // TENTHS))
            )
            writing.start()
            verified += verify(server, tokens, VERIFICATIONS // TENTHS)
            writing.join()
            seen.append(memory_by_process(server))
            print(f"tenth {tenth + 1}: {verified:,} verified, {seen[-1]}", flush=True)
    assert verified >= VERIFICATIONS
    with closing(apsw.Connection(str(tmp_path / "data" / "watchword.db"))) as file:
        made, ended = file.execute(_WRITTEN).get
    assert made == ended == WRITES // TENTHS // 2 // WRITERS * WRITERS * TENTHS
    for process, half in seen[TENTHS // 2 - 1].items():
        assert seen[-1][process] <= half * MOST_GROWTH, seen
