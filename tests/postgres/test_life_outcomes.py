"""What becomes of a token's life when answers are lost: each change is made once, and a key gives one token."""

import pytest

from tests.contract.harness import ANN, PLENTY, SYSTEM, Run, key, record, successor, where
from tests.postgres.test_outcomes import HASTY, alive, patience, place, run, store, strait
from tests.support.postgres import Home
from tests.support.strait import Strait
from watchword.domain.bulk_revocation import Receipt, Selection, receipt
from watchword.domain.errors import Fault, Reason
from watchword.domain.filters import Field
from watchword.domain.idempotency import IdempotencyRecord
from watchword.domain.ports import Issue, Repeated, Store
from watchword.domain.tokens import TokenRecord
from watchword.stores.open import open_store
from watchword.stores.sql.transaction import ignore

__all__ = ["patience", "run", "store", "strait"]  # the fixtures of the neighbour

ISSUE = Issue(key(1).kid, PLENTY)
FAR = 2**52
OLD = record(1, expires_at=None)
NEW = successor(2, OLD, expires_at=FAR, full_end=FAR)
OF_ANN = Selection(filters=(where(Field.ACTOR_URN, ANN),))


def keyed(number: int) -> tuple[TokenRecord, Issue]:
    made = record(number, created_at=FAR)
    return made, Issue(key(1).kid, PLENTY, IdempotencyRecord(ANN, "digest", key(1).kid, made.id, made.created_at, None))


def told(home: Home, action: str, target: str) -> int:
    ((count,),) = home.look("SELECT count(*) FROM events WHERE action = %s AND target = %s", action, target)
    return int(count)


@pytest.fixture
def practised(run: Run, store: Store) -> Store:
    """Each was done once, so that each step is one request from now on."""
    run(store.add_token(SYSTEM, record(90, expires_at=None), ISSUE))
    run(store.rotate_token(SYSTEM, record(90, expires_at=None), successor(91, record(90), expires_at=FAR), ISSUE))
    run(store.note_first_use(SYSTEM, record(91).id))
    run(store.revoke_tokens(SYSTEM, OF_ANN))
    run(store.add_token(SYSTEM, OLD, ISSUE))
    return store


@HASTY
def test_a_token_asked_for_under_a_key_is_not_withdrawn_when_its_answer_is_lost(
    run: Run,
    store: Store,
    strait: Strait,
    database: Home,
) -> None:
    made, issue = keyed(1)
    strait.lose_answer(for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, made, issue))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    strait.calm()
    kept = run(store.get_idempotency_record(ANN, "digest"))
    assert kept == issue.idempotency
    run(store.close())  # which brings every withdrawal to its end
    assert alive(database, made.id) == [True]


@HASTY
def test_a_request_under_a_key_that_comes_late_finds_the_key_taken(
    run: Run,
    store: Store,
    strait: Strait,
    database: Home,
) -> None:
    late, issue = keyed(1)
    sooner, again = keyed(2)

    async def overtake() -> None:
        strait.hold_next_request(for_good=True)
        with pytest.raises(Fault) as caught:
            await store.add_token(SYSTEM, late, issue)
        assert caught.value.reason is Reason.OUTCOME_UNKNOWN
        other = await open_store(place(database, database.address.port, 30), lambda: 0, ignore)
        await other.add_token(SYSTEM, sooner, again)
        strait.calm()
        strait.release()
        with pytest.raises(Repeated):
            await other.add_token(SYSTEM, late, issue)
        await other.close()

    run(overtake())
    assert (alive(database, late.id), alive(database, sooner.id)) == ([], [True])


@pytest.mark.parametrize("step", [0, 1, 6, 8, 10])
def test_a_rotation_is_made_once_wherever_its_connection_is_cut(
    run: Run,
    practised: Store,
    strait: Strait,
    database: Home,
    step: int,
) -> None:
    """BEGIN, locks, proof, look, the old one, slot, the new one, event, note in the old one, number, COMMIT."""
    strait.lose_answer(after=step)
    run(practised.rotate_token(SYSTEM, OLD, NEW, ISSUE))
    assert not strait._plan, "it took fewer steps"
    assert database.look("SELECT id FROM tokens WHERE replaces = %s", OLD.id) == [(NEW.id,)]
    assert database.look("SELECT replaced_by FROM tokens WHERE id = %s", OLD.id) == [(NEW.id,)]
    assert told(database, "token.rotated", NEW.id) == 1


def test_a_first_use_whose_answer_was_lost_is_one_first_use(
    run: Run,
    practised: Store,
    strait: Strait,
    database: Home,
) -> None:
    run(practised.rotate_token(SYSTEM, OLD, NEW, ISSUE))
    strait.lose_answer()
    run(practised.note_first_use(SYSTEM, NEW.id))
    assert not strait._plan
    assert told(database, "token.replaced", OLD.id) == 1
    assert database.look("SELECT grace, expires_at FROM tokens WHERE id = %s", NEW.id) == [(None, FAR)]


@pytest.mark.parametrize("step", [3, 10, 12])
def test_an_ending_of_many_is_made_once_wherever_its_connection_is_cut(
    run: Run,
    practised: Store,
    strait: Strait,
    database: Home,
    step: int,
) -> None:
    strait.lose_answer(after=step)
    ended: Receipt = run(practised.revoke_tokens(SYSTEM, OF_ANN))
    assert not strait._plan, "it took fewer steps"
    assert ended == receipt([OLD.id], ended.revoked_at)
    assert database.look("SELECT revoked_at FROM tokens WHERE id = %s", OLD.id) == [(ended.revoked_at,)]
    assert told(database, "token.revoked", OLD.id) == told(database, "tokens.revoked", ended.digest) == 1
