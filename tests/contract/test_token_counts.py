"""Counts of tokens for metrics."""

from tests.contract.harness import ADMIN, BOB, SYSTEM, Run, StoreHarness
from tests.support.backends import NOW
from watchword.domain.actors import ActorStatus
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import Store, Use
from watchword.domain.token_counts import UNUSED_DAYS, TokenCounts

UNUSED = UNUSED_DAYS * DAY


def test_live_unlimited_and_expiring_tokens_are_counted(harness: StoreHarness, run: Run, store: Store) -> None:
    assert run(store.token_counts()) == TokenCounts(0, 0, (0, 0, 0))
    for number, end in enumerate((1, DAY, DAY + 1, 7 * DAY, 30 * DAY, 30 * DAY + 1)):
        harness.token(number, expires_at=NOW + end)
    harness.token(6, expires_at=None)
    revoked = [harness.token(number, expires_at=end) for number, end in ((7, None), (8, NOW + 1), (9, NOW + 99 * DAY))]
    run(store.revoke_token(SYSTEM, revoked[0].id, None))
    run(store.revoke_token(SYSTEM, revoked[1].id, None))
    assert run(store.token_counts()) == TokenCounts(8, 1, (2, 4, 5))

    harness.clock.now += DAY  # two expire; a token at its end is not live
    assert run(store.token_counts()) == TokenCounts(6, 1, (1, 2, 4))


def test_tokens_of_suspended_actors_count_as_live(harness: StoreHarness, run: Run, store: Store) -> None:
    harness.token(1, BOB)
    run(store.set_actor_status(harness.precondition(ADMIN), BOB, ActorStatus.SUSPENDED))
    assert run(store.token_counts()).live == 1


def test_unused_tokens_are_live_and_neither_new_nor_used_lately(harness: StoreHarness, run: Run, store: Store) -> None:
    late = NOW + UNUSED
    tokens = [harness.token(number, expires_at=late + DAY) for number in range(5)]
    harness.token(5, expires_at=late)
    harness.token(6, expires_at=None)
    harness.token(7, created_at=NOW + 1, expires_at=None)
    run(store.revoke_token(SYSTEM, tokens[0].id, None))
    run(store.record_uses({tokens[1].id: Use(NOW, 1, "10.0.0.0/8"), tokens[2].id: Use(NOW + 1, 1, "10.0.0.0/8")}))
    harness.clock.now = late

    unused, after = 0, ""
    reads: list[int] = []
    while not reads or reads[-1] == 3:
        batch = run(store.unused_tokens(after, 3, UNUSED))
        reads.append(batch.read)
        unused, after = unused + batch.unused, batch.last
    assert reads == [3, 3, 2]
    assert unused == 4  # 1, 3, 4 and 6
