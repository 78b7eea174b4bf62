"""How many changes an actor may make, counted in the store: over all instances, and through restarts."""

from dataclasses import replace

from tests.contract.harness import ADMIN, ANN, BOB, HOUR, OPS, Run, StoreHarness, account, all_of, allow, policy
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.authority.policies import POLICY_PART
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY
from watchword.declared.rules import DeclaredSet
from watchword.journal.events import EventSearch
from watchword.journal.preconditions import WritePrecondition
from watchword.notices.mail_rules import MailKind
from watchword.stores.joined import Store

DAILY = 8
EVERY = 2 * DAY // DAILY
"""Milliseconds until there is one more."""
KINDS = frozenset({MailKind.NEW_NETWORK}), frozenset[MailKind]()


def counted(harness: StoreHarness, actor: str) -> WritePrecondition:
    return replace(harness.precondition(actor), daily_changes=DAILY)


def changes(harness: StoreHarness, actor: str, store: Store | None = None) -> int:
    """How many changes the actor makes until one is refused."""
    made = 0
    off = harness.run(harness.store.mail_kinds_off(actor))
    while made < 2 * DAILY:
        off = KINDS[off == KINDS[0]]
        change = (store or harness.store).set_mail_kinds_off(counted(harness, actor), off)
        (refused,) = harness.run(all_of([change]))
        if refused is not None:
            assert refused.reason is Reason.TOO_MANY_CHANGES
            assert refused.details["retryAfter"] <= EVERY // 1_000
            break
        made += 1
    return made


def test_actor_makes_half_of_its_changes_at_once_and_the_others_over_the_day(harness: StoreHarness) -> None:
    assert changes(harness, ANN) == DAILY // 2
    assert changes(harness, BOB) == DAILY // 2, "each actor has its own"
    harness.clock.now = NOW + EVERY
    assert [changes(harness, ANN), changes(harness, ANN)] == [1, 0]
    harness.clock.now = NOW + DAY - 1
    assert changes(harness, ANN) == 2, "not more than eight in any 24 hours"
    harness.clock.now = NOW + 10 * DAY
    assert changes(harness, ANN) == DAILY // 2


def test_changes_are_counted_over_all_instances(harness: StoreHarness, location: StoreLocation, run: Run) -> None:
    other = run(location.open())
    try:
        harness.run(harness.store.set_mail_kinds_off(counted(harness, ANN), KINDS[0]))
        assert changes(harness, ANN, other) == DAILY // 2 - 1
        assert changes(harness, ANN) == 0
    finally:
        run(other.close())


def test_concurrent_changes_are_all_counted(harness: StoreHarness) -> None:
    by = counted(harness, ADMIN)
    results = harness.run(all_of(harness.store.add_account(by, account(number)) for number in range(DAILY)))
    refused = [one for one in results if isinstance(one, Fault) and one.reason is Reason.TOO_MANY_CHANGES]
    assert (results.count(None), len(refused)) == (DAILY // 2, DAILY // 2)
    assert harness.run(harness.store.accounts(0, 10)).total == DAILY // 2


def test_refused_change_is_not_made_and_writes_no_event(harness: StoreHarness) -> None:
    changes(harness, ANN)
    off, written = harness.run(harness.store.mail_kinds_off(ANN)), events(harness)
    assert changes(harness, ANN) == 0
    assert (harness.run(harness.store.mail_kinds_off(ANN)), events(harness)) == (off, written)


def test_change_that_changes_nothing_is_not_counted(harness: StoreHarness) -> None:
    for _ in range(2 * DAILY):
        harness.run(harness.store.set_mail_kinds_off(counted(harness, ANN), KINDS[1]))
    assert changes(harness, ANN) == DAILY // 2


def test_policy_file_counts_once(harness: StoreHarness) -> None:
    declared = DeclaredSet(parts={POLICY_PART: tuple(policy(n, ANN) for n in range(3 * DAILY))})
    by = counted(harness, ADMIN)
    plan = harness.run(harness.store.apply_set(by, declared, prune=False, require=allow))
    assert len(plan.changes) == 3 * DAILY
    assert changes(harness, ADMIN) == DAILY // 2 - 1


def test_what_takes_rights_away_is_never_refused_and_not_counted(harness: StoreHarness) -> None:
    store, run = harness.store, harness.run
    token = harness.token(1)
    run(store.add_account(harness.precondition(), account(1)))
    run(store.add_group(harness.precondition(), OPS))
    run(store.change_members(harness.precondition(), OPS.urn, add=[ANN, BOB]))
    run(store.add_policy(harness.precondition(), policy(1, BOB)))
    for expected in (DAILY // 2, 0):
        if expected:
            run(store.revoke_token(counted(harness, ADMIN), token.id, None))
            run(store.change_members(counted(harness, ADMIN), OPS.urn, remove=[ANN]))
        else:
            run(store.set_actor_status(counted(harness, ADMIN), BOB, ActorStatus.SUSPENDED))
            run(store.end_sessions_of(counted(harness, ADMIN), BOB))
            run(store.leave_groups(counted(harness, ADMIN), BOB))
            run(store.delete_policy(counted(harness, ADMIN), policy(1).urn))
            run(store.delete_group(counted(harness, ADMIN), OPS.urn))
            run(store.delete_account(counted(harness, ADMIN), account(1).urn))
        assert changes(harness, ADMIN) == expected
    fault = harness.fault_of(store.set_actor_status(counted(harness, ADMIN), BOB, ActorStatus.ACTIVE))
    assert fault.reason is Reason.TOO_MANY_CHANGES


def test_clock_that_was_set_back_refuses_no_more_than_one_interval(harness: StoreHarness) -> None:
    changes(harness, ANN)
    harness.clock.now = NOW - 2 * DAY
    changes(harness, ANN)
    harness.clock.now += EVERY
    assert changes(harness, ANN) == 1


def test_actors_that_may_make_a_whole_burst_again_are_forgotten(harness: StoreHarness) -> None:
    changes(harness, ANN)
    harness.clock.now = NOW + HOUR
    changes(harness, BOB)
    assert harness.run(harness.store.purge_change_rates(10)) == 0
    harness.clock.now = NOW + DAY + 1
    assert harness.run(harness.store.purge_change_rates(10)) == 1
    harness.clock.now = NOW + 3 * DAY
    assert harness.run(harness.store.purge_change_rates(10)) == 1
    assert changes(harness, ANN) == DAILY // 2


def events(harness: StoreHarness) -> int:
    return len(harness.run(harness.store.events(EventSearch(count=1_000))).events)
