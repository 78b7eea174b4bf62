"""Helpers for the store contract tests."""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import pytest

from tests.support.backends import NOW, SettableClock
from tests.support.strategies import numbered_id
from watchword.access.group_rules import Group
from watchword.accounts.rules import ServiceAccount
from watchword.authority.policies import Policy, root_policy
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Stale
from watchword.basics.names import ACCOUNT_PREFIX, GROUP_PREFIX, POLICY_PREFIX
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import Receipt, RevocationPreview, Selection
from watchword.tokens.filters import Condition, Field, Filter, Page, Search
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.keys import SealedKey
from watchword.tokens.rules import Issue, TokenRecord, TokenType

T = TypeVar("T")
ADMIN = "urn:li:corpuser:admin"
ANN = "urn:li:corpuser:ann"
BOB = "urn:li:corpuser:bob"
EVE = "urn:li:corpuser:eve"
OPS = Group(GROUP_PREFIX + "ops", "Operators", "on call")
SECOND = 1_000
MINUTE = 60_000
HOUR = 3_600_000
SYSTEM = system_precondition("a test")
PLENTY = 10_000


class Run(Protocol):
    def __call__(self, coro: Coroutine[Any, Any, T], /) -> T: ...


def record(number: int, actor: str = ANN, *, owner: str | None = None, **fields: Any) -> TokenRecord:
    made = TokenRecord(
        id=numbered_id(number),
        type=TokenType.PERSONAL,
        name=f"token {number}",
        description=None,
        actor_urn=actor,
        owner_urn=owner or actor,
        created_at=NOW,
        expires_at=NOW + HOUR,
    )
    return made._replace(**fields)


def derived(number: int, parent: TokenRecord, **fields: Any) -> TokenRecord:
    born = {"parent": parent.id, "root": parent.family, "created_with": parent.id, "expires_at": parent.expires_at}
    return record(number, parent.actor_urn, **(born | fields))


def successor(number: int, old: TokenRecord, **fields: Any) -> TokenRecord:
    """An unused successor: valid for a minute, one second of grace, then an hour."""
    kin = {"parent": old.parent, "root": old.family, "replaces": old.id, "type": old.type}
    span = {"expires_at": NOW + MINUTE, "grace": SECOND, "full_end": NOW + HOUR}
    return record(number, old.actor_urn, **(kin | span | fields))


def account(number: int, **fields: Any) -> ServiceAccount:
    made = ServiceAccount(
        f"{ACCOUNT_PREFIX}00000000-0000-4000-8000-{number:012}", f"account {number}", None, NOW, ADMIN
    )
    return replace(made, **fields)


def key(number: int, created_at: int = NOW) -> SealedKey:
    return SealedKey(f"kid-{number}", b"public %d" % number, b"sealed %d" % number, created_at)


def policy(number: int, *users: str, privilege: Privilege = Privilege.VIEW_AUDIT_LOG, **fields: Any) -> Policy:
    made = Policy(
        urn=f"{POLICY_PREFIX}{number}",
        name=f"policy {number}",
        privileges=frozenset({privilege}),
        users=frozenset(users),
    )
    return replace(made, **fields)


def allow(_: Privilege) -> None:
    """For changes by someone who holds every privilege."""


def where(field: Field, *values: str | int, condition: Condition = Condition.EQUAL, negated: bool = False) -> Filter:
    return Filter(field, condition, values, negated)


async def all_of(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run concurrently; exceptions are returned as results."""
    return await asyncio.gather(*work, return_exceptions=True)


class StoreHarness:
    def __init__(self, run: Run, store: Store, clock: SettableClock) -> None:
        self.run = run
        self.store = store
        self.clock = clock
        self.kid = key(1).kid

    def first_start(self) -> None:
        self.run(self.store.settle_keys(b"sealed salt", key(1), key(2)))
        self.run(self.store.apply_start(root_policy(ADMIN), ()))

    def precondition(self, actor: str = ADMIN, bearer: TokenRecord | None = None) -> WritePrecondition:
        """The precondition for a write by this actor now."""
        version = self.run(self.store.actor_snapshot(actor)).policy_version
        return WritePrecondition(actor, bearer.id if bearer else None, version, "127.0.0.1", "request-1")

    def token(self, number: int, actor: str = ANN, **fields: Any) -> TokenRecord:
        made = record(number, actor, **fields)
        return self.add(made)

    def add(self, made: TokenRecord) -> TokenRecord:
        self.run(
            self.store.add_token(SYSTEM, made._replace(last_used_at=None, revoked_at=None), Issue(self.kid, PLENTY))
        )
        return made

    def rotate_key(self, number: int) -> None:
        """Rotate to the next key; `number` is the key after it."""
        stored = self.run(self.store.next_key())
        assert stored is not None
        self.run(self.store.rotate_key(SYSTEM, stored.kid, key(number, created_at=self.clock.now)))

    def issue(self, retry: IdempotencyRecord | None = None) -> Issue:
        return Issue(self.kid, PLENTY, retry)

    def derive(self, number: int, parent: TokenRecord, **fields: Any) -> TokenRecord:
        """Derive a token with the parent as bearer."""
        made = derived(number, parent, **fields)
        self.run(self.store.add_token(self.precondition(parent.actor_urn, parent), made, self.issue()))
        return made

    def rotate(self, number: int, old: TokenRecord, **fields: Any) -> TokenRecord:
        """Add an unused successor of the token's current state."""
        seen = self.stored(old)
        assert seen is not None
        made = successor(number, seen, **fields)
        self.run(self.store.rotate_token(SYSTEM, seen, made, self.issue()))
        return made

    def use_first(self, token: TokenRecord) -> None:
        self.run(self.store.note_first_use(self.precondition(token.actor_urn, token), token.id))

    def rotate_and_use(self, number: int, old: TokenRecord, **fields: Any) -> TokenRecord:
        """Add a successor and use it once."""
        made = self.rotate(number, old, **fields)
        self.use_first(made)
        return made

    def live_numbers(self, *tokens: TokenRecord) -> list[int]:
        """The numbers of the tokens that are accepted now."""
        found = [self.run(self.store.find_bearer(token.id)) for token in tokens]
        return [
            int(token.name.split()[1])
            for token, bearer in zip(tokens, found, strict=True)
            if bearer is not None
            and bearer.revoked_at is None
            and (bearer.expires_at is None or bearer.expires_at > self.clock.now)
        ]

    def revoke_matching(self, *filters: Filter, **fields: Any) -> Receipt:
        return self.run(self.store.revoke_tokens(SYSTEM, Selection(filters=filters, **fields)))

    def preview(self, *filters: Filter, **fields: Any) -> RevocationPreview:
        return self.run(self.store.revocation_preview(Selection(filters=filters, **fields)))

    def revoke(self, token: TokenRecord, *, cascade: bool = False) -> int:
        return self.run(self.store.revoke_token(SYSTEM, token.id, None, cascade=cascade)).at

    def stored(self, token: TokenRecord) -> TokenRecord | None:
        return self.run(self.store.get_token(token.id))

    def search(self, *filters: Filter, **fields: Any) -> Page:
        return self.run(self.store.search(Search(filters=filters, **fields)))

    def ids(self, *filters: Filter, **fields: Any) -> list[str]:
        return [row.id for row in self.search(*filters, **fields).rows]

    def total(self, *filters: Filter) -> int:
        return self.search(*filters, count=0).total

    def fault_of(self, work: Coroutine[Any, Any, Any]) -> Fault:
        with pytest.raises(Fault) as caught:
            self.run(work)
        return caught.value

    def assert_stale(self, work: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(Stale):
            self.run(work)
