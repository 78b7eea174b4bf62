"""Each change writes its event in the same transaction."""

from collections.abc import Callable, Coroutine
from typing import Any

from tests.contract.harness import (
    ADMIN,
    ANN,
    BOB,
    HOUR,
    OPS,
    PLENTY,
    Run,
    StoreHarness,
    allow,
    key,
    policy,
    record,
)
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.access.actor_rules import ProfileField
from watchword.accounts.rules import ServiceAccount
from watchword.authority.callers import ActorStatus
from watchword.authority.limits import Limits
from watchword.authority.policies import ROOT_POLICY, default_policies, root_policy
from watchword.basics.names import ACCOUNT_PREFIX
from watchword.journal.events import Action, KeptEvent
from watchword.journal.preconditions import WritePrecondition
from watchword.notices.mail_rules import MailKind
from watchword.retention.rules import RetentionRule
from watchword.signin.session_rules import Identity
from watchword.stores.joined import Store
from watchword.tokens.counts import Use
from watchword.tokens.rules import Issue

Work = Callable[[Store, WritePrecondition], Coroutine[Any, Any, Any]]

DERIVED = record(
    2,
    ADMIN,
    expires_at=NOW + 1,
    parent=numbered_id(99),
    root=numbered_id(99),
    limits=Limits(("repo:read",), None, ()),
)
SUCCESSOR = record(
    3, ADMIN, expires_at=NOW + 100, replaces=numbered_id(98), root=numbered_id(98), grace=50, full_end=NOW + HOUR
)
ACCOUNT = ServiceAccount(f"{ACCOUNT_PREFIX}00000000-0000-4000-8000-000000000001", "builds", None, NOW, ADMIN)
RULE = RetentionRule("dataset.datasetProfile", 30 * 24 * HOUR)

# In order: each change works on the results of the previous ones.
CHANGES: list[tuple[Action, str, dict[str, Any], Work]] = [
    (
        Action.TOKEN_CREATED,
        numbered_id(1),
        {"name": "token 1", "actorUrn": ANN, "expiresAt": NOW + HOUR},
        lambda s, w: s.add_token(w, record(1, ANN, owner=ADMIN), Issue("kid-1", PLENTY)),
    ),
    (
        Action.TOKEN_REVOKED,
        numbered_id(1),
        {"name": "token 1", "actorUrn": ANN},
        lambda s, w: s.revoke_token(w, numbered_id(1), None),
    ),
    (
        Action.TOKEN_DERIVED,
        numbered_id(2),
        {
            "name": "token 2",
            "actorUrn": ADMIN,
            "expiresAt": NOW + 1,
            "scopes": ["repo:read"],
            "networks": [],
            "parent": numbered_id(99),
        },
        lambda s, w: s.add_token(w, DERIVED, Issue("kid-1", PLENTY)),
    ),
    (
        Action.TOKEN_ROTATED,
        numbered_id(3),
        {"name": "token 3", "actorUrn": ADMIN, "expiresAt": NOW + 100, "replaces": numbered_id(98)},
        lambda s, w: s.rotate_token(w, record(98, ADMIN), SUCCESSOR, Issue("kid-1", PLENTY)),
    ),
    (
        Action.TOKEN_REPLACED,
        numbered_id(98),
        {"name": "token 98", "successor": numbered_id(3), "endsBy": NOW + 4 + 50},
        lambda s, w: s.note_first_use(w, numbered_id(3)),
    ),
    (Action.ACCOUNT_CREATED, ACCOUNT.urn, {"name": "builds"}, lambda s, w: s.add_account(w, ACCOUNT)),
    (
        Action.ACCOUNT_DELETED,
        ACCOUNT.urn,
        {"name": "builds", "tokens": 0},
        lambda s, w: s.delete_account(w, ACCOUNT.urn),
    ),
    (
        Action.POLICY_CREATED,
        policy(1).urn,
        {
            "name": "policy 1",
            "state": "ACTIVE",
            "privileges": ["VIEW_AUDIT_LOG"],
            "scopes": [],
            "users": [ANN],
            "groups": [],
            "allUsers": False,
            "source": "API",
        },
        lambda s, w: s.add_policy(w, policy(1, ANN)),
    ),
    (
        Action.POLICY_UPDATED,
        policy(1).urn,
        {
            "name": "policy 1",
            "state": "ACTIVE",
            "privileges": ["VIEW_AUDIT_LOG"],
            "scopes": [],
            "users": [ANN, BOB],
            "groups": [OPS.urn],
            "allUsers": True,
            "source": "API",
        },
        lambda s, w: s.replace_policy(w, policy(1, ANN, BOB, groups=frozenset({OPS.urn}), all_users=True)),
    ),
    (Action.POLICY_DELETED, policy(1).urn, {"name": "policy 1"}, lambda s, w: s.delete_policy(w, policy(1).urn)),
    (Action.GROUP_CREATED, OPS.urn, {"name": OPS.name}, lambda s, w: s.add_group(w, OPS)),
    (
        Action.GROUP_MEMBERS_ADDED,
        OPS.urn,
        {"name": OPS.name, "members": [ANN, BOB]},
        lambda s, w: s.change_members(w, OPS.urn, add=[BOB, ANN]),
    ),
    (
        Action.GROUP_MEMBERS_REMOVED,
        OPS.urn,
        {"name": OPS.name, "members": [ANN]},
        lambda s, w: s.change_members(w, OPS.urn, remove=[ANN]),
    ),
    (Action.GROUP_DELETED, OPS.urn, {"name": OPS.name}, lambda s, w: s.delete_group(w, OPS.urn)),
    (
        Action.ACTOR_UPDATED,
        BOB,
        {"fields": ["displayName", "email"]},
        lambda s, w: s.set_profile(w, BOB, {ProfileField.EMAIL: "bob@example.com", ProfileField.DISPLAY_NAME: "Bob"}),
    ),
    (
        Action.ACTOR_LINKED,
        BOB,
        {"issuer": "https://id.example", "sessions": 0, "approvals": 0},
        lambda s, w: s.link_actor(w, BOB, Identity("https://id.example", "bob")),
    ),
    (Action.ACTOR_SUSPENDED, BOB, {}, lambda s, w: s.set_actor_status(w, BOB, ActorStatus.SUSPENDED)),
    (Action.ACTOR_RESUMED, BOB, {}, lambda s, w: s.set_actor_status(w, BOB, ActorStatus.ACTIVE)),
    (
        Action.RETENTION_RULE_SET,
        RULE.key,
        {**RULE.written(), "set": None},
        lambda s, w: s.put_rule(w, RULE, allow),
    ),
    (Action.RETENTION_RULE_DELETED, RULE.key, {}, lambda s, w: s.delete_rule(w, RULE.series, allow)),
    (
        Action.RETENTION_HOLD_SET,
        RULE.key,
        {"reason": "audit", "byRule": False},
        lambda s, w: s.set_hold(w, RULE.series, "audit"),
    ),
    (
        Action.RETENTION_HOLD_RELEASED,
        RULE.key,
        {"reason": "audit", "setBy": ADMIN, "setAt": NOW + 20, "byRule": False},
        lambda s, w: s.release_hold(w, RULE.series, allow),
    ),
    (
        Action.ACTOR_MAIL_PREFERENCES_CHANGED,
        ADMIN,
        {"off": ["new-network"]},
        lambda s, w: s.set_mail_kinds_off(w, frozenset({MailKind.NEW_NETWORK})),
    ),
    (Action.KEY_PREPARED, "kid-7", {"kind": "RS256"}, lambda s, w: s.replace_next(w, "kid-2", key(7))),
    (Action.KEY_ROTATED, "kid-7", {}, lambda s, w: s.rotate_key(w, "kid-7", key(3))),
    (
        Action.TOKEN_UPDATED,
        numbered_id(99),
        {"actorUrn": ADMIN, "name": "reports", "fields": ["name", "description"], "oldName": "token 99"},
        lambda s, w: s.update_token(w, numbered_id(99), None, name="reports", description="nightly"),
    ),
]


def test_every_change_writes_its_event(harness: StoreHarness, location: StoreLocation) -> None:
    bearer = harness.token(99, ADMIN)
    harness.token(98, ADMIN)
    for step, (action, target, detail, work) in enumerate(CHANGES):
        harness.clock.now = NOW + step
        before = location.events()
        harness.run(work(harness.store, harness.precondition(ADMIN, bearer)))
        after = location.events()
        wanted = KeptEvent(NOW + step, ADMIN, bearer.id, action.value, target, "127.0.0.1", "request-1", detail)
        assert after == [*before, wanted]


def test_every_action_is_covered() -> None:
    at_start = {Action.KEY_CREATED, Action.SETTING_CHANGED}
    of_no_change = {Action.ACCESS_DENIED, Action.AUTHENTICATION_FAILED}
    of_the_store = {Action.STORE_RESTORED, Action.STORE_PRIMARY_CHANGED}  # test_restore.py, test_confirmed_reads.py
    of_operations = {Action[name] for name in Action.__members__ if name.startswith("OPERATION_")}  # test_operations.py
    of_files = {Action.ACCOUNT_UPDATED, Action.GROUP_UPDATED}  # test_declared_entities.py
    of_files |= {Action[name] for name in Action.__members__ if name.startswith("RESOURCE_")}  # test_resources.py
    # test_sessions.py, test_people_sign_in.py
    of_sessions = {Action.SESSION_STARTED, Action.SESSION_ENDED, Action.ACTOR_GROUPS_CHANGED}
    of_retries = {Action.TOKEN_REPLAYED}  # test_retries.py
    of_imports = {Action.TOKEN_IMPORTED, Action.DATAHUB_IMPORTED}  # test_import_rules.py
    of_many = {Action.TOKENS_REVOKED}  # test_bulk_revocation.py
    of_devices = {Action.DEVICE_APPROVED, Action.DEVICE_DENIED}  # test_devices.py
    runs = ("REPORTED", "APPROVAL_NEEDED", "APPROVED", "OVERDUE", "CLOCK_JUMPED")
    of_runs = {Action[f"RETENTION_{name}"] for name in runs}  # test_retention_runs.py
    of_webhooks = {Action[name] for name in Action.__members__ if name.startswith("WEBHOOK_")}  # test_webhooks.py
    changes = {action for action, *_ in CHANGES} | of_devices | of_imports | of_many | of_runs | of_webhooks
    # test_expiry_notices.py, test_mail.py
    of_notices = {Action.TOKEN_EXPIRING, Action.TOKEN_NEW_NETWORK, Action.TOKEN_FOUND_BY_SCAN}
    others = (at_start, of_no_change, of_the_store, of_notices, of_operations, of_files, of_sessions, of_retries)
    assert changes.union(*others) == set(Action)


def test_member_change_writes_events_for_added_and_removed(harness: StoreHarness, location: StoreLocation) -> None:
    harness.run(harness.store.add_group(harness.precondition(), OPS))
    harness.run(harness.store.change_members(harness.precondition(), OPS.urn, add=[ANN]))
    before = len(location.events())
    harness.run(harness.store.change_members(harness.precondition(), OPS.urn, add=[BOB], remove=[ANN]))
    told = {(event.action, tuple(event.detail["members"])) for event in location.events()[before:]}
    assert told == {(Action.GROUP_MEMBERS_ADDED.value, (BOB,)), (Action.GROUP_MEMBERS_REMOVED.value, (ANN,))}


def test_first_start_writes_its_events(harness: StoreHarness, location: StoreLocation) -> None:
    assert [(event.action, event.target, event.peer) for event in location.events()] == [
        ("key.created", "kid-1", "start"),
        ("policy.created", "urn:li:servicePolicy:root", "start"),
    ]


def test_default_policies_write_events(run: Run, store: Store, location: StoreLocation) -> None:
    run(store.apply_start(root_policy(ADMIN), default_policies()))
    told = [(event.action, event.target) for event in location.events()]
    assert told == [("policy.created", urn) for urn in (*(made.urn for made in default_policies()), ROOT_POLICY)]


def test_reads_and_probes_write_no_event(harness: StoreHarness, location: StoreLocation) -> None:
    token = harness.token(1)
    before = location.events()
    harness.run(harness.store.probe())
    harness.run(harness.store.record_uses({token.id: Use(NOW, 1, "10.0.0.0/24")}))
    harness.run(harness.store.find_bearer(token.id))
    harness.search()
    assert location.events() == before


def test_rejected_change_writes_no_event(harness: StoreHarness, location: StoreLocation) -> None:
    before = location.events()
    harness.fault_of(harness.store.add_token(harness.precondition(), record(1), Issue(harness.kid, 0)))
    harness.fault_of(harness.store.revoke_token(harness.precondition(), numbered_id(1), None))
    harness.fault_of(harness.store.delete_policy(harness.precondition(), "urn:li:servicePolicy:root"))
    harness.fault_of(harness.store.delete_group(harness.precondition(), OPS.urn))
    assert location.events() == before
