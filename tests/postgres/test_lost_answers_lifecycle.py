"""Lost answers during rotation, first use and bulk revocation: each change happens once."""

import pytest

from tests.contract.harness import ANN, PLENTY, SYSTEM, Run, key, record, successor, where
from tests.postgres.test_lost_answers import COMMIT, SHORT_TIMEOUT, is_active, proxy, run, store, store_url, timeout
from tests.support.faulty_proxy import FaultyProxy
from tests.support.postgres import Home
from watchword.basics.errors import Fault, Reason
from watchword.database.transaction import ignore
from watchword.stores import open_store
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import Receipt, Selection, receipt
from watchword.tokens.filters import Field
from watchword.tokens.idempotency import IdempotencyRecord, Repeated
from watchword.tokens.rules import Issue, TokenRecord

__all__ = ["proxy", "run", "store", "timeout"]  # fixtures of test_lost_answers

ISSUE = Issue(key(1).kid, PLENTY)
FAR = 2**52
OLD = record(1, expires_at=None)
NEW = successor(2, OLD, expires_at=FAR, full_end=FAR)
OF_ANN = Selection(filters=(where(Field.ACTOR_URN, ANN),))


KEYED_COMMIT = COMMIT + 1


def keyed_request(number: int, digest: str = "digest") -> tuple[TokenRecord, Issue]:
    made = record(number, created_at=FAR)
    return made, Issue(key(1).kid, PLENTY, IdempotencyRecord(ANN, digest, key(1).kid, made.id, made.created_at, None))


def event_count(home: Home, action: str, target: str) -> int:
    ((count,),) = home.look("SELECT count(*) FROM events WHERE action = %s AND target = %s", action, target)
    return int(count)


@pytest.fixture
def warm_store(run: Run, store: Store) -> Store:
    """Each operation ran once, so that each step is one request."""
    run(store.add_token(SYSTEM, record(90, expires_at=None), ISSUE))
    run(store.rotate_token(SYSTEM, record(90, expires_at=None), successor(91, record(90), expires_at=FAR), ISSUE))
    run(store.note_first_use(SYSTEM, record(91).id))
    run(store.revoke_tokens(SYSTEM, OF_ANN))
    run(store.add_token(SYSTEM, OLD, ISSUE))
    return store


@SHORT_TIMEOUT
def test_keyed_token_is_not_withdrawn_after_a_lost_answer(
    run: Run,
    store: Store,
    proxy: FaultyProxy,
    database: Home,
) -> None:
    run(store.add_token(SYSTEM, *keyed_request(9, "first")))
    made, issue = keyed_request(1)
    proxy.lose_answer(after=KEYED_COMMIT, for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, made, issue))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    proxy.stop_faults()
    kept = run(store.get_idempotency_record(ANN, "digest"))
    assert kept == issue.idempotency
    run(store.close())  # close() finishes every withdrawal
    assert is_active(database, made.id) == [True]


@SHORT_TIMEOUT
def test_delayed_request_finds_its_idempotency_key_taken(
    run: Run,
    store: Store,
    proxy: FaultyProxy,
    database: Home,
) -> None:
    late, issue = keyed_request(1)
    sooner, again = keyed_request(2)

    async def overtake() -> None:
        await store.add_token(SYSTEM, *keyed_request(9, "first"))
        proxy.hold_request(after=KEYED_COMMIT, for_good=True)
        with pytest.raises(Fault) as caught:
            await store.add_token(SYSTEM, late, issue)
        assert caught.value.reason is Reason.OUTCOME_UNKNOWN
        other = await open_store(store_url(database, database.address.port, 30), lambda: 0, ignore)
        await other.add_token(SYSTEM, sooner, again)
        proxy.stop_faults()
        proxy.release()
        with pytest.raises(Repeated):
            await other.add_token(SYSTEM, late, issue)
        await other.close()

    run(overtake())
    assert (is_active(database, late.id), is_active(database, sooner.id)) == ([], [True])


@pytest.mark.parametrize("step", [0, 1, 5, 6, 8])
def test_rotation_happens_once_wherever_the_connection_breaks(
    run: Run,
    warm_store: Store,
    proxy: FaultyProxy,
    database: Home,
    step: int,
) -> None:
    """BEGIN, locks, facts, old token, its lock, new token with event, link, mark, COMMIT."""
    proxy.lose_answer(after=step)
    run(warm_store.rotate_token(SYSTEM, OLD, NEW, ISSUE))
    assert not proxy._plan, "it took fewer steps"
    assert database.look("SELECT id FROM tokens WHERE replaces = %s", OLD.id) == [(NEW.id,)]
    assert database.look("SELECT replaced_by FROM tokens WHERE id = %s", OLD.id) == [(NEW.id,)]
    assert event_count(database, "token.rotated", NEW.id) == 1


def test_first_use_happens_once_after_a_lost_answer(
    run: Run,
    warm_store: Store,
    proxy: FaultyProxy,
    database: Home,
) -> None:
    run(warm_store.rotate_token(SYSTEM, OLD, NEW, ISSUE))
    proxy.lose_answer()
    run(warm_store.note_first_use(SYSTEM, NEW.id))
    assert not proxy._plan
    assert event_count(database, "token.replaced", OLD.id) == 1
    assert database.look("SELECT grace, expires_at FROM tokens WHERE id = %s", NEW.id) == [(None, FAR)]


@pytest.mark.parametrize("step", [3, 10, 12])
def test_bulk_revocation_happens_once_wherever_the_connection_breaks(
    run: Run,
    warm_store: Store,
    proxy: FaultyProxy,
    database: Home,
    step: int,
) -> None:
    proxy.lose_answer(after=step)
    ended: Receipt = run(warm_store.revoke_tokens(SYSTEM, OF_ANN))
    assert not proxy._plan, "it took fewer steps"
    assert ended == receipt([OLD.id], ended.revoked_at)
    assert database.look("SELECT revoked_at FROM tokens WHERE id = %s", OLD.id) == [(ended.revoked_at,)]
    assert event_count(database, "token.revoked", OLD.id) == event_count(database, "tokens.revoked", ended.digest) == 1
