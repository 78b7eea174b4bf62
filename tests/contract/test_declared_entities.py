"""Groups and service accounts that a policy file declares are applied with its policies."""

from dataclasses import replace

from tests.contract.harness import ADMIN, ANN, BOB, EVE, StoreHarness
from tests.support.backends import StoreLocation
from watchword.domain.declared_entities import DeclaredAccount, DeclaredGroup, EntityChange, check_entities
from watchword.domain.errors import Reason
from watchword.domain.names import ACCOUNT_PREFIX, GROUP_PREFIX
from watchword.domain.policies import ChangeKind, PolicyDeclaration
from watchword.domain.ports import Group

OPS, AIRFLOW = GROUP_PREFIX + "ops", ACCOUNT_PREFIX + "airflow"
THE_ACCOUNT = DeclaredAccount("airflow", "Airflow", None, frozenset({OPS}))


def group(*members: str, name: str = "Operations") -> DeclaredGroup:
    return DeclaredGroup("ops", name, None, frozenset(members))


def declaration(*declared: DeclaredGroup | DeclaredAccount, set_name: str = "default") -> PolicyDeclaration:
    groups = [one for one in declared if isinstance(one, DeclaredGroup)]
    accounts = [one for one in declared if isinstance(one, DeclaredAccount)]
    return PolicyDeclaration((), set_name, check_entities(groups, accounts, set_name))


def apply(harness: StoreHarness, declared: PolicyDeclaration, *, prune: bool = True) -> tuple[EntityChange, ...]:
    plan = harness.run(harness.store.apply_policies(harness.precondition(), declared, prune=prune))
    return () if plan.entities is None else plan.entities.changes


def kinds(changes: tuple[EntityChange, ...]) -> list[tuple[str, str]]:
    return [(change.kind.value, change.urn) for change in changes]


def members(harness: StoreHarness) -> set[str]:
    return set(harness.run(harness.store.members(OPS, 0, 100))[1])


def test_declared_groups_and_accounts_are_created_updated_and_pruned(
    harness: StoreHarness, location: StoreLocation
) -> None:
    assert kinds(apply(harness, declaration(group(ANN), THE_ACCOUNT))) == [("CREATE", OPS), ("CREATE", AIRFLOW)]
    assert members(harness) == {ANN, AIRFLOW}
    made = harness.run(harness.store.get_account(AIRFLOW))
    assert (made.name, made.created_by, made.set_name) == ("Airflow", ADMIN, "default")
    assert apply(harness, declaration(group(ANN), THE_ACCOUNT)) == ()

    renamed = THE_ACCOUNT._replace(name="Scheduler", groups=frozenset())
    assert kinds(apply(harness, declaration(group(BOB, name="Ops"), renamed))) == [("UPDATE", OPS), ("UPDATE", AIRFLOW)]
    assert members(harness) == {BOB}
    found = harness.run(harness.store.get_group(OPS))
    assert (found.name, found.members, found.set_name) == ("Ops", 1, "default")

    assert kinds(apply(harness, declaration())) == [("DELETE", OPS), ("UPDATE", AIRFLOW)]
    assert harness.fault_of(harness.store.get_group(OPS)).reason is Reason.GROUP_NOT_FOUND
    kept = harness.run(harness.store.get_account(AIRFLOW))
    assert kept == replace(made, name="Scheduler", set_name=None)
    assert [event.action for event in location.events()[-9:]] == [
        "group.created", "group.members_added", "account.created",
        "group.updated", "group.members_added", "group.members_removed", "account.updated",
        "group.deleted", "account.updated",
    ]  # fmt: skip


def test_members_that_are_not_declared_stay(harness: StoreHarness) -> None:
    harness.run(harness.store.add_group(harness.precondition(), Group(OPS, "By hand", None)))
    harness.run(harness.store.change_members(harness.precondition(), OPS, add=[ANN, EVE]))
    open_group = DeclaredGroup("ops", "Operations")
    (change, _) = apply(harness, declaration(open_group, THE_ACCOUNT))
    assert change.kind is ChangeKind.UPDATE  # it joins the set
    assert members(harness) == {ANN, EVE, AIRFLOW}
    assert apply(harness, declaration(open_group, THE_ACCOUNT)) == ()


def test_without_prune_undeclared_groups_and_accounts_are_reported_and_stay(harness: StoreHarness) -> None:
    apply(harness, declaration(group(ANN), THE_ACCOUNT))
    plan = harness.run(harness.store.apply_policies(harness.precondition(), declaration(), prune=False))
    assert plan.entities is not None
    assert (plan.entities.changes, [one.urn for one in plan.entities.undeclared]) == ((), [OPS, AIRFLOW])
    assert members(harness) == {ANN, AIRFLOW}


def test_group_of_another_set_and_deleted_account_are_conflicts(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declaration(group(ANN), THE_ACCOUNT))
    for declared in (
        declaration(group(BOB), set_name="b"),
        declaration(THE_ACCOUNT._replace(groups=frozenset()), set_name="b"),
    ):
        refusal = harness.fault_of(harness.store.apply_policies(harness.precondition(), declared, prune=True))
        assert (refusal.reason, refusal.details["set"]) == (Reason.POLICY_DECLARED_ELSEWHERE, "default")
    harness.run(harness.store.delete_account(harness.precondition(), AIRFLOW))
    before = location.events()
    again = declaration(group(BOB), THE_ACCOUNT)
    refusal = harness.fault_of(harness.store.apply_policies(harness.precondition(), again, prune=True))
    assert refusal.reason is Reason.ALREADY_EXISTS
    assert location.events() == before
    assert ANN in members(harness)
    assert kinds(apply(harness, declaration(group(ANN)))) == [("UPDATE", OPS)]  # without the deleted account
