"""Creates and revocations that share a transaction do not deadlock, and do not wait for what others have locked."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.contract.harness import ADMIN, PLENTY, SYSTEM, Run, all_of, key, record
from tests.postgres.test_lost_answers import run, store_url, without_deadlocks
from tests.support.postgres import Home, SharedClusters
from tests.support.strategies import numbered_id
from watchword.authority.policies import root_policy
from watchword.database.postgres.hosts import connect
from watchword.database.transaction import ignore
from watchword.database.urls import PostgresUrl
from watchword.stores import open_store, prepare
from watchword.tokens.counts import Use
from watchword.tokens.rules import Issue

__all__ = ["run"]  # a fixture of test_lost_answers


def test_concurrent_revocations_and_uses_of_the_same_tokens_do_not_deadlock(
    run: Run, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    with without_deadlocks(shared_clusters, tmp_path) as there:
        assert run(revoke_concurrently(there)) == 300


def test_tokens_that_another_session_locks_do_not_delay_the_revocation_of_others(
    run: Run, database: Home, tmp_path: Path
) -> None:
    prepare(there := store_url(database, database.address.port, 30))
    assert run(revoke_beside_locks(there)) == [True] * 8


async def revoke_beside_locks(there: PostgresUrl) -> list[bool]:
    """Revoke eight tokens of which the first four are locked until the others are revoked."""
    store, blocker = await open_store(replace(there, pool=8), lambda: 0, ignore), await connect(there)
    await store.settle_keys(b"sealed salt", key(1), key(2))
    await store.apply_start(root_policy(ADMIN), ())
    await all_of([store.add_token(SYSTEM, record(n), Issue(key(1).kid, PLENTY)) for n in range(8)])
    await blocker.execute("BEGIN")
    await blocker.fetch("SELECT 1 FROM tokens WHERE id = ANY ($1) FOR UPDATE", [numbered_id(n) for n in range(4)])
    locked = [asyncio.ensure_future(store.revoke_token(SYSTEM, numbered_id(n), None)) for n in range(4)]
    others = [await store.revoke_token(SYSTEM, numbered_id(n), None) for n in range(4, 8)]
    still = not any(one.done() for one in locked)
    await blocker.execute("ROLLBACK")
    outcomes = [*await asyncio.gather(*locked), *others]
    blocker.terminate()
    await store.close()
    return [still and isinstance(outcome, tuple) for outcome in outcomes]


async def revoke_concurrently(there: PostgresUrl) -> int:
    """Revoke 300 tokens by four stores, each in its own order, while they record uses; how many were revoked."""
    stores = [await open_store(replace(there, pool=4), lambda: 0, ignore) for _ in range(4)]
    await stores[0].settle_keys(b"sealed salt", key(1), key(2))
    await stores[0].apply_start(root_policy(ADMIN), ())
    await all_of([stores[0].add_token(SYSTEM, record(n), Issue(key(1).kid, PLENTY)) for n in range(300)])
    work: list[Any] = []
    for number, store in enumerate(stores):
        order = [numbered_id(n) for n in range(300)]
        random.Random(number).shuffle(order)
        work += [store.revoke_token(SYSTEM, token, None) for token in order]
        work += [store.record_uses(dict.fromkeys(order[n : n + 30], Use(1, 1, "n"))) for n in range(0, 300, 30)]
    outcomes = await all_of(work)
    for store in stores:
        await store.close()
    return sum(isinstance(outcome, tuple) for outcome in outcomes)
