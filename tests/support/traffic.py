"""Constant reads, inserts, updates and deletes on an index of a real node, with a model of what was acknowledged.

Every writer has rows of its own, so that the order of what happened to a row is known.
"""

import json
import random
import threading
import time
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.server import plain_client
from tests.support.waiting import SECONDS

UNTIL = 1_700_000_000_000
ANCHORS = 50
PAUSE = 0.012
"""Between two requests of one thread: constant traffic, and a processor left for those it is meant to meet."""


class Traffic:
    def __init__(self, url: str, name: str, *, writers: int = 2, readers: int = 1) -> None:
        self._url = url
        self.name = name
        self.model: dict[str, dict[str, Any]] = {}
        """What was acknowledged, by id."""
        self.aged: set[str] = set()
        """Rows made old while it ran: gone if that was before the swap, there if it was after."""
        self.failures: list[str] = []
        self.turned_away: list[tuple[int, int]] = []
        """From when to when a request was asked that found its index gone, in milliseconds since 1970."""
        self.reads = self.writes = self.held_back = 0
        self._stop = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._guarded, args=(self._write, n)) for n in range(writers)),
            *(threading.Thread(target=self._guarded, args=(self._read, n)) for n in range(readers)),
        ]
        self._owned: list[list[str]] = [[] for _ in range(writers)]
        self._old: list[list[str]] = [[] for _ in range(writers)]

    def fill(self, *, old: int, new: int, alias: bool = False, **settings: Any) -> None:
        """Make the index, or an alias over one, with rows up to the time that will be cut at, and after it."""
        body: dict[str, Any] = {"settings": settings}
        body["mappings"] = {"properties": {"timestampMillis": {"type": "date"}}}
        if alias:
            body["aliases"] = {self.name: {}}
        with plain_client(self._url, 60) as http:
            http.put(f"/{self.name}_1" if alias else f"/{self.name}", json=body).raise_for_status()
            rows: dict[str, dict[str, Any]] = {}
            for n in range(ANCHORS):
                rows[f"anchor-{n}"] = row(UNTIL + 1 + n, n)
            for n in range(new):
                rows[f"new-{n}"] = row(UNTIL + 1 + n, n)
                self._owned[n % len(self._owned)].append(f"new-{n}")
            for n in range(old):
                rows[f"old-{n}"] = row(UNTIL - n, n)
                self._old[n % len(self._old)].append(f"old-{n}")
            ids = list(rows)
            for start in range(0, len(ids), 2_000):
                lines: list[str] = []
                for one in ids[start : start + 2_000]:
                    lines += [json.dumps({"index": {"_id": one}}), json.dumps(rows[one])]
                answer = http.post(
                    f"/{self.name}/_bulk",
                    content="\n".join(lines) + "\n",
                    headers={"Content-Type": "application/x-ndjson"},
                )
                assert not answer.json()["errors"]
            http.post(f"/{self.name}/_refresh").raise_for_status()
        self.model = rows

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)

    def check(self) -> None:
        """No read failed, and the index holds exactly what was acknowledged and is not old."""
        assert (self.failures, self.turned_away) == ([], [])
        assert self.reads > 0
        assert self.writes > 0
        kept = {one: what for one, what in self.model.items() if what["timestampMillis"] > UNTIL}
        found = rows_of(self._url, self.name)
        for one in self.aged:
            if one in found:
                assert found.pop(one) == self.model[one]
        assert found == kept

    def _guarded(self, work: Any, number: int) -> None:
        with plain_client(self._url, 60) as http:
            try:
                while not self._stop.wait(PAUSE):
                    work(http, number)
            except Exception as error:  # noqa: BLE001 - told to the test
                self.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _read(self, http: httpx.Client, number: int) -> None:
        wanted = {"ids": {"values": [f"anchor-{n}" for n in range(ANCHORS)]}}
        asked = time.time_ns() // 1_000_000
        answer = http.post(f"/{self.name}/_count", json={"query": wanted})
        told = answer.json()
        if answer.status_code == 503 and told["error"]["type"] == "search_phase_execution_exception":
            self.turned_away.append((asked, time.time_ns() // 1_000_000))
        elif answer.status_code != 200 or told["count"] != ANCHORS or told["_shards"]["failed"]:
            self.failures.append(f"read: {answer.status_code} {answer.text[:300]}")
        self.reads += 1

    def _write(self, http: httpx.Client, number: int) -> None:
        draw = random.random()
        own = self._owned[number]
        if draw < 0.4 or not own:
            one = f"w{number}-{self.writes}-{time.monotonic_ns()}"
            own.append(one)
            self._put(http, one, row(UNTIL + 1 + random.randrange(10**9), 0))
        elif draw < 0.7:
            one = random.choice(own)
            self._put(http, one, row(UNTIL + 1 + random.randrange(10**9), self.writes))
        elif draw < 0.9:
            self._delete(http, own.pop(random.randrange(len(own))))
        elif draw < 0.95 and self._old[number]:
            one = self._old[number].pop()
            own.append(one)
            self._put(http, one, row(UNTIL + 1 + random.randrange(10**9), -1))
        else:
            one = own.pop(random.randrange(len(own)))
            self.aged.add(one)
            self._put(http, one, row(UNTIL - 1, -2))
        self.writes += 1

    def _put(self, http: httpx.Client, one: str, content: dict[str, Any]) -> None:
        self._insist(http, "PUT", one, content)
        self.model[one] = content

    def _delete(self, http: httpx.Client, one: str) -> None:
        self._insist(http, "DELETE", one, None)
        self.model.pop(one, None)

    def _insist(self, http: httpx.Client, method: str, one: str, content: Any) -> None:
        """Writers are held back for a moment by the engine's own 403. One that resolved the name before the index was
        replaced, and is routed after that, gets 404. Anything else is no acknowledgement."""
        while True:
            asked = time.time_ns() // 1_000_000
            answer = http.request(method, f"/{self.name}/_doc/{one}", json=content)
            if answer.status_code in (200, 201):
                return
            if answer.status_code == 404 and "index_not_found_exception" in answer.text:
                self.turned_away.append((asked, time.time_ns() // 1_000_000))
            elif answer.status_code == 403:
                self.held_back += 1
            else:
                raise AssertionError(f"{method} {one}: {answer.status_code} {answer.text[:300]}")
            time.sleep(0.02)


def row(moment: int, number: int) -> dict[str, Any]:
    return {"timestampMillis": moment, "urn": f"urn:li:dataset:{number}", "value": number}


def rows_of(url: str, name: str) -> dict[str, dict[str, Any]]:
    """Everything that the index holds now, past the service."""
    found: dict[str, dict[str, Any]] = {}
    with plain_client(url, 60) as http:
        http.post(f"/{name}/_refresh").raise_for_status()
        page = http.post(f"/{name}/_search?scroll=1m&size=5000", json={"sort": ["_doc"]}).raise_for_status().json()
        while page["hits"]["hits"]:
            found |= {hit["_id"]: hit["_source"] for hit in page["hits"]["hits"]}
            scroll = {"scroll": "1m", "scroll_id": page["_scroll_id"]}
            page = http.post("/_search/scroll", json=scroll).raise_for_status().json()
    return found
