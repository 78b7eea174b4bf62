"""What grows with the store is counted in a thread, not on the event loop that verifies tokens, and once for all who
wait for it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.contract.harness import ANN, Run
from tests.support.backends import NOW
from watchword.database.sqlite.connections import STORE_FILE
from watchword.database.transaction import FEW_KEYS
from watchword.stores.joined import Store
from watchword.stores.sqlite import open_store
from watchword.tokens.counts import TokenCounts
from watchword.tokens.overview_service import TokenCounter

MANY = [f"{ANN}{number}" for number in range(FEW_KEYS + 1)]
GROWING: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "deliveries that wait": lambda store: store.delivery_counts(),
    "mails that wait": lambda store: store.waiting_mails(10_000),
    "mails that are late": lambda store: store.waiting_mails(10_000, late=True),
    "names of many actors": lambda store: store.shown_actors(MANY),
    "suspended ones of many actors": lambda store: store.suspended_among(MANY),
    "uses of many tokens": lambda store: store.uses_of(MANY, 0),
    "networks of many tokens": lambda store: store.networks_of(MANY),
}
SMALL: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "names of a page": lambda store: store.shown_actors(MANY[:FEW_KEYS]),
    "webhooks that are due": lambda store: store.due_webhooks(),
}


@pytest.mark.parametrize("name", [*GROWING, *SMALL])
def test_what_grows_with_the_store_is_read_in_a_thread(run: Run, tmp_path: Path, name: str) -> None:
    path, seen = tmp_path / "store.db", list[str]()
    STORE_FILE.prepare(path)
    store = open_store(path, lambda: NOW, lambda what, _: seen.append(what))
    run((GROWING | SMALL)[name](store))
    run(store.close())
    assert seen == ["scan" if name in GROWING else "read"]


def test_callers_that_wait_for_one_count_share_the_next(run: Run, tmp_path: Path) -> None:
    path, seen = tmp_path / "store.db", list[str]()
    STORE_FILE.prepare(path)
    store = open_store(path, lambda: NOW, lambda what, _: seen.append(what))

    async def count_together() -> list[TokenCounts]:
        counter = TokenCounter(store, lambda: NOW)
        await counter.counts(60.0)
        seen.clear()
        return await asyncio.gather(*(counter.counts(60.0) for _ in range(50)))

    assert run(count_together()) == [TokenCounts()] * 50
    run(store.close())
    assert seen == ["scan", "scan"], "the second began after all of them asked"
