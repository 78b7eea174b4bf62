"""Counts of tokens for metrics and the overview."""

from collections import Counter

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, EVE, HOUR, SYSTEM, Run, StoreHarness
from tests.support.backends import NOW
from watchword.authority.callers import ActorStatus
from watchword.basics.times import DAY
from watchword.journal.day_counts import day_of
from watchword.stores.joined import Store
from watchword.tokens import counts_store as counts
from watchword.tokens.counts import UNUSED_DAYS, TokenCounts, Use

UNUSED = UNUSED_DAYS * DAY


def test_live_never_expiring_and_expiring_tokens_are_counted(harness: StoreHarness, run: Run, store: Store) -> None:
    assert run(store.token_counts()) == TokenCounts()
    for number, end in enumerate((1, DAY, DAY + 1, 7 * DAY, 30 * DAY, 30 * DAY + 1)):
        harness.token(number, expires_at=NOW + end)
    harness.token(6, expires_at=None)
    revoked = [harness.token(number, expires_at=end) for number, end in ((7, None), (8, NOW + 1), (9, NOW + 99 * DAY))]
    run(store.revoke_token(SYSTEM, revoked[0].id, None))
    run(store.revoke_token(SYSTEM, revoked[1].id, None))
    today = day_of(NOW)
    found = run(store.token_counts())
    assert (found.live, found.never_expiring, found.expiring) == (8, 1, (2, 4, 5))
    ends = (1, DAY, DAY + 1, 7 * DAY, 30 * DAY, 30 * DAY + 1)
    assert found.expiries == Counter(day_of(NOW + end) for end in ends)
    assert min(found.expiries) == today

    harness.clock.now += DAY  # two expire; a token at its end is not live
    found = run(store.token_counts())
    assert (found.live, found.never_expiring, found.expiring) == (6, 1, (1, 2, 4))


@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
def test_tokens_of_suspended_actors_are_counted_apart(
    harness: StoreHarness, run: Run, store: Store, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(counts, "FEW_TOKENS", 0)
    for number in range(3):
        harness.token(number, BOB, expires_at=None if number else NOW + DAY)
    for number in range(3, 5):
        harness.token(number, ANN, owner=BOB)
    harness.token(5, ANN, expires_at=NOW + 90 * DAY)
    run(store.set_actor_status(harness.precondition(ADMIN), BOB, ActorStatus.SUSPENDED))
    found = run(store.token_counts())
    expiries = {day_of(NOW + HOUR): 2}
    assert found == TokenCounts(3, 0, (2, 2, 2), 3, expiries, ((BOB, 2), (ANN, 1)), 0)
    assert found.few is few

    harness.clock.now += UNUSED
    harness.token(6, EVE, created_at=harness.clock.now, expires_at=None)
    assert run(store.token_counts()).unused == 0
    run(store.set_actor_status(harness.precondition(ADMIN), BOB, ActorStatus.ACTIVE))
    assert run(store.token_counts()).unused == 2


def test_counts_of_an_actor_are_of_its_own_tokens(harness: StoreHarness, run: Run, store: Store) -> None:
    own, ended = harness.token(1, ANN, owner=BOB, expires_at=None), harness.token(2, ANN, expires_at=NOW + 1)
    gone, other = harness.token(3, ANN), harness.token(4, BOB)
    run(store.record_uses({token.id: Use(NOW, 2, "unix") for token in (own, ended, gone, other)}))
    run(store.revoke_token(SYSTEM, gone.id, None))
    harness.clock.now += 1
    found = run(store.token_counts(ANN))
    assert found == TokenCounts(1, 1, (0, 0, 0), owners=((BOB, 1),), uses={day_of(NOW): 4})
    assert run(store.token_counts(EVE)) == TokenCounts()


def test_unused_tokens_are_live_and_neither_new_nor_used_lately(harness: StoreHarness, run: Run, store: Store) -> None:
    late = NOW + UNUSED
    tokens = [harness.token(number, expires_at=late + DAY) for number in range(5)]
    harness.token(5, expires_at=late)
    harness.token(6, expires_at=None)
    harness.token(7, created_at=NOW + 1, expires_at=None)
    run(store.revoke_token(SYSTEM, tokens[0].id, None))
    run(store.record_uses({tokens[1].id: Use(NOW, 1, "10.0.0.0/8"), tokens[2].id: Use(NOW + 1, 1, "10.0.0.0/8")}))
    harness.token(8, BOB, expires_at=None)
    run(store.set_actor_status(harness.precondition(ADMIN), BOB, ActorStatus.SUSPENDED))
    harness.clock.now = late

    assert run(store.token_counts()).unused == 4  # 1, 3, 4 and 6
