"""Retention rules and holds, in the store: what a hold stops, who may release it, how rules declare one."""

from dataclasses import replace

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, HOUR, SYSTEM, StoreHarness, all_of, allow
from tests.support.backends import NOW, StoreLocation
from watchword.authority.declared_parts import ChangeKind
from watchword.authority.policies import root_policy
from watchword.authority.privileges import deny
from watchword.basics.errors import Fault, Reason
from watchword.declared.rules import DeclaredSet
from watchword.index.holds import Hold
from watchword.index.indices import Aspect
from watchword.index.rules import Operation, Plan, State, Strategy
from watchword.retention.rules import MAX_RULES, RULE_PART, Mode, RetentionRule, StoredRule, parse_rule

DAY = 24 * HOUR
SERIES = "dataset.datasetProfile"
RULE = RetentionRule(SERIES, 30 * DAY)
HELD = replace(RULE, hold="tax audit")


def plan(aspect: str = "datasetProfile", home: str = "") -> Plan:
    index = f"dataset_{aspect.lower()}aspect_v1"
    return Plan(
        Aspect("dataset", aspect), index, NOW, 10, 6, 4_096, Strategy.DELETE_BY_QUERY, "a test", 1_000, home=home
    )


def started(harness: StoreHarness, planned: Plan) -> Operation:
    return harness.run(harness.store.add_operation(SYSTEM, planned))


def holds(harness: StoreHarness) -> tuple[Hold, ...]:
    return harness.run(harness.store.retention()).holds


def put(harness: StoreHarness, rule: RetentionRule, actor: str = ADMIN) -> None:
    harness.run(harness.store.put_rule(harness.precondition(actor), rule, allow))


def test_rule_is_stored_unchanged_and_the_same_rule_again_changes_nothing(
    harness: StoreHarness, location: StoreLocation
) -> None:
    rule = parse_rule(
        {
            "series": SERIES, "keep": "P30D", "removeAfter": "P60DT12H", "maxSize": "20GB", "maxRows": 10**6,
            "keepLast": 1, "schedule": "30 2 * * 1-5", "timeZone": "Europe/Berlin", "window": "22:00-06:00",
            "atMost": "12.5%", "mode": "enforce",
        }
    )  # fmt: skip
    put(harness, rule)
    (stored,) = harness.run(harness.store.retention()).rules
    assert (stored.rule, stored.set_name, stored.changed_at, stored.changed_by) == (rule, None, NOW, ADMIN)
    assert parse_rule(rule.written()) == rule
    events = location.events()
    harness.clock.now += 1
    put(harness, rule)
    assert harness.run(harness.store.retention()).rules == (stored,)
    assert location.events() == events


def test_one_rule_per_series_in_any_case(harness: StoreHarness) -> None:
    put(harness, RULE)
    put(harness, replace(RULE, series="DATASET.datasetprofile", mode=Mode.ENFORCE))
    (stored,) = harness.run(harness.store.retention()).rules
    assert stored.rule.mode is Mode.ENFORCE
    harness.run(harness.store.delete_rule(harness.precondition(), "Dataset.DatasetProfile", deny_release))
    assert harness.run(harness.store.retention()).rules == ()
    gone = harness.fault_of(harness.store.delete_rule(harness.precondition(), SERIES, allow))
    assert gone.reason is Reason.RULE_NOT_FOUND


def deny_release(privilege: object) -> None:
    if getattr(privilege, "name", "") == "RELEASE_RETENTION_HOLDS":
        raise Fault(Reason.MISSING_PRIVILEGE, "no")


def test_number_of_rules_is_bounded(harness: StoreHarness) -> None:
    rules = tuple(StoredRule(RetentionRule(f"dataset.a{number}", DAY), "default") for number in range(MAX_RULES))
    wanted = DeclaredSet(parts={RULE_PART: rules})
    harness.run(harness.store.apply_set(harness.precondition(), wanted, prune=False, require=allow))
    refused = harness.fault_of(harness.store.put_rule(harness.precondition(), RULE, allow))
    assert refused.reason is Reason.TOO_MANY_RULES
    assert len(harness.run(harness.store.retention()).rules) == MAX_RULES


@pytest.mark.parametrize("held", [SERIES.upper(), "*"])
def test_no_operation_starts_on_a_held_series(harness: StoreHarness, held: str) -> None:
    hold, active = harness.run(harness.store.set_hold(harness.precondition(ANN), held, "tax audit"))
    assert (hold, active) == (Hold(held.lower(), "tax audit", ANN, NOW), ())
    refused = harness.fault_of(harness.store.add_operation(harness.precondition(), plan()))
    assert refused.reason is Reason.SERIES_HELD
    assert refused.details == {"series": held.lower(), "setBy": ANN, "setAt": NOW, "holdReason": "tax audit"}
    if held != "*":
        started(harness, plan("operation"))
    harness.run(harness.store.release_hold(harness.precondition(ANN), held, deny))
    started(harness, plan())


def test_hold_asks_the_active_operations_of_every_index_to_cancel(
    harness: StoreHarness, location: StoreLocation
) -> None:
    store = harness.store
    ours, elsewhere, other = started(harness, plan()), started(harness, plan(home="b")), started(harness, plan("x"))
    leased = harness.run(store.lease_operation(10_000, "b"))
    assert leased is not None
    for state in (State.RUNNING, State.VERIFYING, State.SWAPPING):
        leased = harness.run(store.save_operation(replace(leased, state=state), 10_000))
    _, active = harness.run(store.set_hold(harness.precondition(), SERIES, "audit"))
    assert [(one.number, one.state, one.cancel_requested_by) for one in active] == [
        (ours.number, State.PLANNED, ADMIN),
        (elsewhere.number, State.SWAPPING, None),
    ]
    untouched = harness.run(store.operation(other.number))
    assert untouched is not None
    assert untouched.cancel_requested_at is None
    assert [event.action for event in location.events()[-2:]] == ["retention.hold_set", "operation.cancel_requested"]
    again = harness.run(store.set_hold(harness.precondition(), SERIES, "audit"))
    assert [one.number for one in again[1]] == [ours.number, elsewhere.number]


def test_hold_and_operation_that_race_leave_no_operation_running(harness: StoreHarness) -> None:
    for number in range(5):
        aspect = f"race{number}"
        hold = harness.store.set_hold(harness.precondition(), f"dataset.{aspect}", "audit")
        added = harness.store.add_operation(harness.precondition(), plan(aspect))
        first, second = harness.run(all_of([added, hold]))
        if isinstance(first, Operation):
            assert [one.number for one in second[1]] == [first.number]
            assert second[1][0].cancel_requested_at is not None
        else:
            assert isinstance(first, Fault)
            assert first.reason is Reason.SERIES_HELD


def test_another_needs_the_privilege_to_release_a_hold(harness: StoreHarness) -> None:
    store = harness.store
    harness.run(store.set_hold(harness.precondition(ANN), SERIES, "audit"))
    taken = harness.fault_of(store.set_hold(harness.precondition(BOB), SERIES, "mine now"))
    assert taken.reason is Reason.SERIES_HELD
    refused = harness.fault_of(store.release_hold(harness.precondition(BOB), SERIES, deny))
    assert refused.reason is Reason.MISSING_PRIVILEGE
    assert refused.details == {"privilege": "RELEASE_RETENTION_HOLDS"}
    assert [hold.set_by for hold in holds(harness)] == [ANN]
    harness.run(store.release_hold(harness.precondition(BOB), SERIES, allow))
    assert holds(harness) == ()
    missing = harness.fault_of(store.release_hold(harness.precondition(BOB), SERIES, allow))
    assert missing.reason is Reason.HOLD_NOT_FOUND


def test_rule_declares_a_hold_that_ends_with_it(harness: StoreHarness) -> None:
    store = harness.store
    put(harness, HELD, ANN)
    assert holds(harness) == (Hold(SERIES.lower(), "tax audit", ANN, NOW, by_rule=True),)
    by_hand = harness.fault_of(store.release_hold(harness.precondition(ANN), SERIES, allow))
    assert by_hand.reason is Reason.HOLD_DECLARED
    reworded = replace(HELD, hold="nothing important")
    denied = harness.fault_of(store.put_rule(harness.precondition(BOB), reworded, deny_release))
    assert denied.reason is Reason.MISSING_PRIVILEGE
    put(harness, replace(HELD, hold="tax audit, second year"), BOB)
    assert [(hold.reason, hold.set_by) for hold in holds(harness)] == [("tax audit, second year", ANN)]
    for removal in (
        store.put_rule(harness.precondition(BOB), RULE, deny_release),
        store.delete_rule(harness.precondition(BOB), SERIES, deny_release),
    ):
        assert harness.fault_of(removal).reason is Reason.MISSING_PRIVILEGE
    harness.run(store.put_rule(harness.precondition(ANN), RULE, deny_release))
    assert holds(harness) == ()


def test_hold_by_hand_outlasts_the_hold_of_a_rule(harness: StoreHarness) -> None:
    store = harness.store
    harness.run(store.set_hold(harness.precondition(ANN), SERIES, "by hand"))
    put(harness, HELD, BOB)
    assert [(hold.set_by, hold.by_rule) for hold in holds(harness)] == [(BOB, True), (ANN, False)]
    # Neither a change of the rule nor the release of an own hold makes another's hold one's own.
    put(harness, replace(HELD, at_most=51.0), ANN)
    harness.run(store.release_hold(harness.precondition(ANN), SERIES, deny))
    assert [(hold.reason, hold.set_by, hold.by_rule) for hold in holds(harness)] == [("tax audit", BOB, True)]
    dropped = harness.fault_of(store.put_rule(harness.precondition(ANN), RULE, deny_release))
    assert dropped.reason is Reason.MISSING_PRIVILEGE
    harness.run(store.set_hold(harness.precondition(ANN), SERIES, "by hand"))
    put(harness, RULE, BOB)
    assert [(hold.set_by, hold.by_rule) for hold in holds(harness)] == [(ANN, False)]


def test_declared_rules_follow_their_set(harness: StoreHarness) -> None:
    store = harness.store

    def declared(*rules: RetentionRule, set_name: str = "default") -> DeclaredSet:
        return DeclaredSet(set_name, {RULE_PART: tuple(StoredRule(rule, set_name) for rule in rules)})

    def applied(wanted: DeclaredSet, *, prune: bool = False) -> list[tuple[ChangeKind, str]]:
        done = harness.run(store.apply_set(harness.precondition(), wanted, prune=prune, require=allow))
        return [(change.kind, change.name) for change in done[RULE_PART].changes]

    other = RetentionRule("*", DAY)
    put(harness, RULE)
    assert applied(declared(RULE, other)) == [(ChangeKind.UPDATE, SERIES), (ChangeKind.CREATE, "*")]
    assert applied(declared(RULE, other)) == []
    elsewhere = harness.fault_of(
        store.apply_set(harness.precondition(), declared(RULE, set_name="b"), prune=False, require=allow)
    )
    assert elsewhere.reason is Reason.POLICY_DECLARED_ELSEWHERE
    put(harness, replace(RULE, mode=Mode.ENFORCE))
    assert [one.set_name for one in harness.run(store.retention()).rules] == ["default", "default"]
    denied = harness.fault_of(store.apply_set(harness.precondition(), declared(), prune=True))
    assert denied.details == {"privilege": "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE"}
    assert applied(declared(other)) == []
    assert applied(declared(other), prune=True) == [(ChangeKind.DELETE, SERIES)]
    done = harness.run(store.apply_start(root_policy(ADMIN), (), declared(HELD)))
    assert [change.kind for change in done[RULE_PART].changes] == [ChangeKind.CREATE, ChangeKind.DELETE]
    assert [hold.by_rule for hold in holds(harness)] == [True]
