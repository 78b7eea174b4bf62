"""Random concurrent writes from several threads, each with its own store: no orphaned token, no deadlock, consistent
totals."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.harness import (
    ADMIN,
    ANN,
    BOB,
    HOUR,
    SYSTEM,
    StoreHarness,
    account,
    derived,
    record,
    successor,
    where,
)
from tests.support.backends import NOW, StoreLocation
from tests.support.waiting import SECONDS
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault, Reason, Stale
from watchword.journal.preconditions import WritePrecondition
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import Selection
from watchword.tokens.counts import Use
from watchword.tokens.filters import Condition, Field, Filter, Search
from watchword.tokens.idempotency import IdempotencyRecord, Repeated
from watchword.tokens.rules import Issue, TokenRecord, TokenType

THREADS = 4
EACH = 60
ISSUE = Issue("kid-1", 10_000)
MACHINE = account(1).urn
EVER = Filter(Field.STATUS, Condition.IN, ("ACTIVE", "EXPIRED", "REVOKED"))
# Acceptable outcomes of a lost race; any other fault is a defect.
LOST = {
    Reason.ALREADY_REVOKED,
    Reason.TOKEN_NOT_FOUND,
    Reason.ACCOUNT_NOT_FOUND,
    Reason.ACTOR_SUSPENDED,
    Reason.NOT_EDITABLE,
    Reason.INVALID_FIELD,
}


class RaceWorker:
    def __init__(self, location: StoreLocation, number: int, known: list[TokenRecord]) -> None:
        self._place = location
        self._number = number
        self._known = known
        self._random = random.Random(number)
        self.done = 0
        self.defects: list[BaseException] = []

    def run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._work())
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.defects.append(error)

    async def _work(self) -> None:
        store = await self._place.open()
        try:
            for turn in range(EACH):
                number = 1_000 * (self._number + 1) + turn
                try:
                    await self._one(store, number)
                except (Stale, Repeated):
                    continue
                except Fault as fault:
                    if fault.reason not in LOST:
                        self.defects.append(fault)
                else:
                    self.done += 1
        finally:
            await store.close()

    async def _one(self, store: Store, number: int) -> None:
        pick = self._random
        seen = await store.get_token(pick.choice(self._known).id)
        assert seen is not None
        version = (await store.actor_snapshot(seen.actor_urn)).policy_version
        bearer = WritePrecondition(seen.actor_urn, seen.id, version, "peer", f"r{number}")
        verbs: tuple[Callable[[], Any], ...] = (
            lambda: self._keep(store, bearer, record(number, pick.choice((ANN, BOB)), created_with=seen.id)),
            lambda: self._keep(store, bearer, derived(number, seen, type=seen.type)),
            lambda: self._keep(store, bearer, derived(number, seen, type=seen.type)),
            lambda: self._rotate(store, bearer, seen, successor(number, seen)),
            lambda: self._rotate(store, bearer, seen, successor(number, seen)),
            lambda: store.note_first_use(bearer, seen.replaced_by or seen.id),
            lambda: store.note_first_use(bearer, seen.replaced_by or seen.id),
            lambda: store.revoke_token(bearer, seen.id, None),
            lambda: store.revoke_token(SYSTEM, seen.id, None, cascade=pick.random() < 0.3),
            lambda: store.revoke_tokens(SYSTEM, Selection(ids=(seen.id,), cascade=pick.random() < 0.5)),
            lambda: store.set_actor_status(SYSTEM, BOB, pick.choice(list(ActorStatus))),
            lambda: store.record_uses({token.id: Use(NOW, 1, "") for token in pick.sample(self._known, 5)}),
            lambda: store.purge_tokens(NOW, 5),
        )
        await pick.choice(verbs)()

    async def _keep(self, store: Store, precondition: WritePrecondition, token: TokenRecord) -> None:
        retry = IdempotencyRecord(precondition.actor, f"d{self._random.randrange(8)}", "kid-1", token.id, NOW, None)
        issue = replace(ISSUE, idempotency=retry if self._random.random() < 0.2 else None)
        await store.add_token(precondition, token, issue)
        self._known.append(token)

    async def _rotate(self, store: Store, precondition: WritePrecondition, seen: TokenRecord, new: TokenRecord) -> None:
        if seen.grace is None and seen.replaced_at is None:
            await store.rotate_token(precondition, seen, new, ISSUE)
            self._known.append(new)


def run_concurrently(hands: list[RaceWorker]) -> None:
    threads = [threading.Thread(target=each.run) for each in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert [defect for each in hands for defect in each.defects] == []


@pytest.fixture
def busy(harness: StoreHarness) -> StoreHarness:
    harness.run(harness.store.add_account(SYSTEM, account(1)))
    for n in range(12):
        actor, kind = ((ADMIN, "PERSONAL"), (ANN, "PERSONAL"), (BOB, "PERSONAL"), (MACHINE, "SERVICE_ACCOUNT"))[n % 4]
        harness.token(n, actor, expires_at=NOW + HOUR, type=TokenType(kind))
    return harness


def first_tokens(harness: StoreHarness) -> list[TokenRecord]:
    return list(harness.search(count=100).rows)


def test_concurrent_writes_leave_no_orphans_and_no_deadlocks(busy: StoreHarness, location: StoreLocation) -> None:
    before = location.deadlocks()
    known = first_tokens(busy)
    hands = [RaceWorker(location, number, known) for number in range(THREADS)]
    run_concurrently(hands)
    assert sum(each.done for each in hands) > EACH
    assert location.deadlocks() == before
    assert location.problems() == []
    every = {row.id: row for row in busy.search(EVER, count=1_000).rows}
    assert not [
        row.id
        for row in every.values()
        if row.parent is not None and row.is_live(NOW) and not every[row.parent].is_live(NOW)
    ]


def test_no_token_survives_concurrent_account_deletion_and_revocation(
    busy: StoreHarness, location: StoreLocation
) -> None:
    known = first_tokens(busy)
    hands = [RaceWorker(location, number, known) for number in range(THREADS)]

    def delete_and_revoke() -> None:
        async def work() -> None:
            store = await location.open()
            try:
                await store.delete_account(SYSTEM, MACHINE)
                await store.set_actor_status(SYSTEM, ADMIN, ActorStatus.SUSPENDED)
                await store.revoke_tokens(SYSTEM, Selection(filters=(where(Field.ACTOR_URN, ADMIN),), cascade=True))
            finally:
                await store.close()

        with asyncio.Runner() as runner:
            runner.run(work())

    ending = threading.Thread(target=delete_and_revoke)
    ending.start()
    run_concurrently(hands)
    ending.join(SECONDS)
    assert not ending.is_alive()
    left = busy.run(busy.store.search(Search(count=1_000)))
    assert not [row for row in left.rows if row.actor_urn in (ADMIN, MACHINE)]
    assert location.problems() == []
