"""Creates and revocations that are written as one set have the same outcomes as alone, one after the other."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, BOB, EVE, PLENTY, StoreHarness, key, record
from tests.support.strategies import numbered_id
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault
from watchword.database import rows
from watchword.database.transaction import SetWork, Transaction
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.tokens.bulk_revocation import TokenVisibility
from watchword.tokens.create_store import RETRY, NewToken, create
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.revoke_store import TokenToRevoke, revoke_set
from watchword.tokens.rows import insert_tokens
from watchword.tokens.rules import Issue, TokenType

ACCOUNT, DELETED = "urn:li:account:1", "urn:li:account:2"
FAR = 2**52
# Tokens by number: 0 to 3 plain, 4 expired, 5 revoked, 6 with the child 7, 8 replaced by 9, 10 plain, 11 of another
# actor, 12 of a service account, 13 with the revoked child 14. Higher ones are unknown. Nine of ANN are live.
_TOKENS: list[dict[str, Any]] = [
    *({} for _ in range(4)),
    {"expires_at": 1},
    {"revoked_at": 1},
    {},
    {"parent": numbered_id(6), "root": numbered_id(6)},
    {"replaced_by": numbered_id(9)},
    {"replaces": numbered_id(8), "root": numbered_id(8), "grace": 1, "full_end": FAR},
    {"revoked_at": 2},
    {"actor_urn": BOB, "owner_urn": ANN},
    {"actor_urn": ACCOUNT, "type": TokenType.SERVICE_ACCOUNT},
    {},
    {"parent": numbered_id(13), "root": numbered_id(13), "revoked_at": 1},
]
_STATE = (
    "SELECT id, revoked_at IS NOT NULL, actor_urn, owner_urn, parent, root, expires_at FROM tokens ORDER BY 1",
    "SELECT target, actor, bearer_id, action, peer, request_id, detail FROM events ORDER BY request_id, target",
    "SELECT actor, digest, kid, token_id FROM retries ORDER BY 1, 2",
    "SELECT kind, urn, sum(total) FROM token_totals GROUP BY 1, 2 HAVING sum(total) <> 0 ORDER BY 1, 2",
)


class Undone(Exception):
    """What a transaction did, before it is rolled back."""


class Scene:
    """A filled store, on which everything is rolled back."""

    def __init__(self, harness: StoreHarness) -> None:
        self.harness = harness
        self.database = harness.store._db
        harness.run(harness.store.set_actor_status(system_precondition("a test"), EVE, ActorStatus.SUSPENDED))
        self.version = harness.precondition().policy_version
        harness.run(self.database.write(_fill))

    def after(self, work: SetWork[Any, Any], sets: Sequence[Sequence[Any]]) -> Any:
        """What became of the items of these sets, and the rows that they leave behind."""

        async def undone(tx: Transaction) -> None:
            outcomes = [one for items in sets for one in await work(tx, items)]
            raise Undone([_said(one) for one in outcomes], [[tuple(r) for r in await tx.fetch(sql)] for sql in _STATE])

        with pytest.raises(Undone) as done:
            self.harness.run(self.database.write(undone))
        return done.value.args

    def check(self, work: SetWork[Any, Any], items: Sequence[Any]) -> None:
        assert self.after(work, [items]) == self.after(work, [[item] for item in items])

    def by(self, number: int, actor: str, bearer: int | None, age: int | None) -> WritePrecondition:
        if age is None:
            return system_precondition("a test", f"request {number}")
        return WritePrecondition(actor, _id(bearer), self.version - age, "peer", f"request {number}")


def _said(outcome: Any) -> Any:
    if isinstance(outcome, Fault):
        return outcome.reason
    return type(outcome) if isinstance(outcome, Exception) else getattr(outcome, "number", outcome)


def _id(number: int | None) -> str | None:
    return None if number is None else numbered_id(number)


async def _fill(tx: Transaction) -> None:
    names = ("revoked_at", "replaced_by")
    for number, fields in enumerate(_TOKENS):
        plain = {"owner_urn": ADMIN, "expires_at": FAR, **fields}
        await insert_tokens(tx, [record(number)._replace(**plain)])
        for name in (one for one in names if one in fields):
            await tx.execute(f"UPDATE tokens SET {name} = $2 WHERE id = $1", numbered_id(number), fields[name])
    for urn, deleted in ((ACCOUNT, None), (DELETED, 1)):
        await tx.execute(rows.insert("service_accounts", rows.ACCOUNT), urn, "a", None, 0, "x", deleted, None)
    for digest, at in (("new", FAR), ("old", 0)):
        await tx.execute(rows.insert("retries", RETRY), ANN, digest, "k", "t", at, None)


@pytest.fixture
def scene(harness: StoreHarness) -> Scene:
    return Scene(harness)


numbers = st.integers(0, len(_TOKENS))
bearers = st.none() | numbers
# Mostly what is accepted, so that some sets are accepted as a whole.
versions = st.sampled_from([None, 0, 0, 0, 1])
creates = st.tuples(
    st.sampled_from([ANN, ANN, ANN, BOB, EVE]),
    st.none() | st.sampled_from([0, 0, 1, *range(len(_TOKENS))]),
    versions,
    st.sampled_from([key(1).kid] * 8 + ["old"]),
    st.sampled_from([PLENTY] * 4 + [9, 10, 11]),
    st.sampled_from([None] * 6 + ["a", "b", "old", "new"]),
    st.sampled_from([*range(20, 40), 20, 21, 1, 5, 10]),
    st.sampled_from([(TokenType.PERSONAL, ANN)] * 6 + [(TokenType.PERSONAL, BOB), (TokenType.SERVICE_ACCOUNT, ACCOUNT)]
                    + [(TokenType.SERVICE_ACCOUNT, DELETED), (TokenType.PERSONAL, EVE)]),
    st.sampled_from([None] * 6 + [0, 4, 5, 6, 9, 50]),
)  # fmt: skip
revocations = st.tuples(
    st.sampled_from([ANN, ANN, ANN, BOB, EVE]),
    bearers,
    versions,
    st.sampled_from([*range(4), *range(4), *range(len(_TOKENS) + 1)]),
    st.sampled_from([None, None, None, ANN, ADMIN, BOB]),
    st.booleans(),
    st.booleans(),
)
sets = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@sets
@given(drawn=st.lists(creates, min_size=2, max_size=6))
@example(drawn=[(ANN, None, 0, key(1).kid, 11, None, new, (TokenType.PERSONAL, ANN), None) for new in (20, 21, 22)])
@example(
    drawn=[
        (ANN, None, 0, key(1).kid, PLENTY, digest, new, (TokenType.PERSONAL, ANN), None)
        for new, digest in ((20, None), (21, "a"), (22, "a"))
    ]
)
def test_creates_have_the_same_outcomes_together_as_alone(scene: Scene, drawn: list[Any]) -> None:
    items = []
    for number, (actor, bearer, age, kid, most, digest, new, (kind, of), parent) in enumerate(drawn):
        ties = {"created_with": _id(bearer), "parent": _id(parent), "root": _id(parent)}
        made = record(new, of, owner=actor, expires_at=FAR, type=kind, **ties)
        kept = None if digest is None else IdempotencyRecord(ANN, digest, kid, made.id, FAR, None)
        items.append(NewToken(scene.by(number, actor, bearer, age), made, Issue(kid, most, kept)))
    scene.check(create, items)


PLAIN = (ANN, None, 0)
ANYONE = (None, False, False)


@sets
@given(drawn=st.lists(revocations, min_size=2, max_size=6))
@example(drawn=[(*PLAIN, 0, *ANYONE), (*PLAIN, 1, *ANYONE), (*PLAIN, 11, *ANYONE)])
@example(drawn=[(*PLAIN, 0, *ANYONE), (*PLAIN, 0, *ANYONE)])
@example(drawn=[(*PLAIN, 7, *ANYONE), (*PLAIN, 6, *ANYONE)])
@example(drawn=[(*PLAIN, 6, *ANYONE), (*PLAIN, 7, *ANYONE), (*PLAIN, 9, *ANYONE), (*PLAIN, 8, *ANYONE)])
@example(drawn=[(ANN, 0, 0, 0, *ANYONE), (ANN, 0, 0, 1, *ANYONE), (ANN, 2, 0, 3, *ANYONE)])
@example(drawn=[(ANN, 0, 0, 1, *ANYONE), (ANN, 1, 0, 0, *ANYONE)])
def test_revocations_have_the_same_outcomes_together_as_alone(scene: Scene, drawn: list[Any]) -> None:
    items = []
    for number, (actor, bearer, age, token, visible, accounts, created) in enumerate(drawn):
        seen = None if visible is None else TokenVisibility(visible, accounts=accounts, created=created)
        items.append(TokenToRevoke(scene.by(number, actor, bearer, age), numbered_id(token), seen))
    scene.check(revoke_set, items)
