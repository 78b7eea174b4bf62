"""What the contract's tests say to a store."""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import pytest

from tests.support.backends import NOW, Hand
from tests.support.strategies import numbered_id
from watchword.domain.actors import Warrant, system_warrant
from watchword.domain.errors import Fault, Stale
from watchword.domain.filters import Condition, Field, Filter, Search
from watchword.domain.policies import Policy, Privilege, root_policy
from watchword.domain.ports import Group, Page, SealedKey, Store
from watchword.domain.tokens import TokenRecord, TokenType
from watchword.domain.urns import GROUP_PREFIX, POLICY_PREFIX

T = TypeVar("T")
ADMIN = "urn:li:corpuser:admin"
ANN = "urn:li:corpuser:ann"
BOB = "urn:li:corpuser:bob"
EVE = "urn:li:corpuser:eve"
OPS = Group(GROUP_PREFIX + "ops", "Operators", "on call")
HOUR = 3_600_000
SYSTEM = system_warrant("a test")
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


def where(field: Field, *values: str | int, condition: Condition = Condition.EQUAL, negated: bool = False) -> Filter:
    return Filter(field, condition, values, negated)


async def all_of(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """All at once; what one raises stands in its place."""
    return await asyncio.gather(*work, return_exceptions=True)


class Given:
    def __init__(self, run: Run, store: Store, clock: Hand) -> None:
        self.run = run
        self.store = store
        self.clock = clock
        self.kid = key(1).kid

    def first_start(self) -> None:
        self.run(self.store.settle_keys(b"sealed salt", key(1)))
        self.run(self.store.settle(root_policy(ADMIN), ()))

    def warrant(self, actor: str = ADMIN, bearer: TokenRecord | None = None) -> Warrant:
        """What the actor would write by at this moment."""
        version = self.run(self.store.standing(actor)).policy_version
        return Warrant(actor, bearer.id if bearer else None, version, "127.0.0.1", "request-1")

    def token(self, number: int, actor: str = ANN, **fields: Any) -> TokenRecord:
        made = record(number, actor, **fields)
        return self.keep(made)

    def keep(self, made: TokenRecord) -> TokenRecord:
        self.run(self.store.add_token(SYSTEM, replace(made, last_used_at=None, revoked_at=None), self.kid, PLENTY))
        return made

    def revoke(self, token: TokenRecord) -> int:
        return self.run(self.store.revoke_token(SYSTEM, token.id, None))

    def kept(self, token: TokenRecord) -> TokenRecord | None:
        return self.run(self.store.get_token(token.id))

    def search(self, *filters: Filter, **fields: Any) -> Page:
        return self.run(self.store.search(Search(filters=filters, **fields)))

    def ids(self, *filters: Filter, **fields: Any) -> list[str]:
        return [row.id for row in self.search(*filters, **fields).rows]

    def total(self, *filters: Filter) -> int:
        return self.search(*filters, count=0).total

    def refused(self, work: Coroutine[Any, Any, Any]) -> Fault:
        with pytest.raises(Fault) as caught:
            self.run(work)
        return caught.value

    def stale(self, work: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(Stale):
            self.run(work)
