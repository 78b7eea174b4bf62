"""SQLite checks a plain create and revokes a token without relatives in fewer statements, with the same result."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.harness import HOUR, PLENTY, SYSTEM, StoreHarness, derived, policy, record
from tests.support.backends import NOW
from watchword.domain.actors import ActorStatus
from watchword.domain.bulk_revocation import TokenVisibility
from watchword.domain.errors import Fault, Stale
from watchword.domain.ports import Issue
from watchword.domain.tokens import TokenRecord, TokenType
from watchword.stores.sql import token_lifecycle
from watchword.stores.sql.token_lifecycle import SqlTokens
from watchword.stores.sql.transaction import Transaction, Work
from watchword.stores.sqlite import SqliteStore

EXAMPLES = 15
_numbers = count(1)
_TABLES = ("tokens", "token_totals", "events")
LATER = ("nothing", "suspend maker", "suspend actor", "revoke bearer", "expire bearer", "policies", "key")
# What is most common is drawn most often: only then the short path is taken.
RELATIVES = (*["none"] * 5, "child", "revoked child", "expired child", "successor", "used successor")
STATES = (*["live"] * 3, "expired", "revoked", "missing")
SEEN = (None, "maker", "maker, without created", "actor", "other", "accounts")

searched = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


class Undone(Exception):
    """What a transaction did, before it is rolled back."""


async def undone(tx: Transaction, work: Work[Any]) -> None:
    try:
        result = await work(tx)
    except Stale:
        result = "stale"
    except Fault as fault:
        result = (fault.reason, fault.message)
    raise Undone(result, [await tx.fetch(f"SELECT * FROM {table}") for table in _TABLES])


class Scene:
    """A maker with a bearer, and another actor."""

    def __init__(self, harness: StoreHarness) -> None:
        self.harness = harness
        assert isinstance(harness.store, SqliteStore)
        self.store = harness.store
        harness.clock.now = NOW
        harness.kid = harness.run(harness.store.keys())[0].kid
        number = next(_numbers)
        self.maker, self.actor = f"urn:li:corpuser:maker{number}", f"urn:li:corpuser:actor{number}"
        self.bearer = harness.token(next(_numbers), self.maker)
        self.precondition = harness.precondition(self.maker, self.bearer)

    def outcome(self, work: Work[Any]) -> Any:
        """The result, and the rows that the transaction would leave."""
        with pytest.raises(Undone) as done:
            self.harness.run(self.store._db.write(lambda tx: undone(tx, work)))
        return done.value.args

    def change(self, what: str) -> None:
        run, store = self.harness.run, self.store
        match what:
            case "suspend maker":
                run(store.set_actor_status(SYSTEM, self.maker, ActorStatus.SUSPENDED))
            case "suspend actor":
                run(store.set_actor_status(SYSTEM, self.actor, ActorStatus.SUSPENDED))
            case "revoke bearer":
                run(store.revoke_token(SYSTEM, self.bearer.id, None))
            case "expire bearer":
                self.harness.clock.now = NOW + HOUR
            case "policies":
                run(store.add_policy(SYSTEM, policy(next(_numbers), self.maker)))
            case "key":
                self.harness.rotate_key(1_000 + next(_numbers))

    def relate(self, token: TokenRecord, what: str) -> None:
        match what:
            case "successor":
                self.harness.rotate(next(_numbers), token)
            case "used successor":
                self.harness.rotate_and_use(next(_numbers), token)
            case "child" | "revoked child" | "expired child":
                end = NOW - 1 if what == "expired child" else token.expires_at
                child = self.harness.add(derived(next(_numbers), token, expires_at=end))
                if what == "revoked child":
                    self.harness.revoke(child)

    def visibility(self, seen: str | None) -> TokenVisibility | None:
        match seen:
            case None:
                return None
            case "maker, without created":
                return TokenVisibility(self.maker, created=False)
            case "accounts":
                return TokenVisibility("urn:li:corpuser:nobody", accounts=True)
            case _:
                return TokenVisibility({"maker": self.maker, "actor": self.actor}.get(seen, "urn:li:corpuser:nobody"))


@pytest.mark.parametrize("later", LATER)
@searched
@given(
    own=st.booleans(),
    max_live=st.sampled_from((1, 2, PLENTY, PLENTY, PLENTY)),
    kind=st.sampled_from((TokenType.PERSONAL, TokenType.PERSONAL, *TokenType)),
    is_child=st.sampled_from((False, False, False, True)),
)
def test_one_statement_checks_a_create_as_all_do(
    harness: StoreHarness, later: str, own: bool, max_live: int, kind: TokenType, is_child: bool
) -> None:
    scene = Scene(harness)
    harness.token(next(_numbers), scene.actor)
    scene.change(later)
    wanted = record(next(_numbers), scene.maker if own else scene.actor, type=kind)
    if is_child:
        wanted = derived(next(_numbers), scene.bearer, type=kind, expires_at=NOW + 2 * HOUR)
    arguments = (scene.precondition, wanted, Issue(harness.kid, max_live))
    assert scene.outcome(lambda tx: scene.store._check_new(tx, *arguments)) == scene.outcome(
        lambda tx: token_lifecycle.check_new(tx, *arguments)
    )


@pytest.mark.parametrize("later", LATER)
@searched
@given(
    own=st.booleans(),
    state=st.sampled_from(STATES),
    relative=st.sampled_from(RELATIVES),
    seen=st.sampled_from(SEEN),
)
def test_token_without_relatives_is_revoked_as_any_is(
    harness: StoreHarness, later: str, own: bool, state: str, relative: str, seen: str | None
) -> None:
    scene = Scene(harness)
    actor = scene.maker if own else scene.actor
    wanted = record(next(_numbers), actor, owner=scene.maker, expires_at=NOW + (1 if state == "expired" else 2 * HOUR))
    if state != "missing":
        harness.add(wanted)
        scene.relate(wanted, relative)
    if state == "revoked":
        harness.revoke(wanted)
    if state == "expired":
        harness.clock.now = NOW + 1
    scene.change(later)
    how: dict[str, Any] = {
        "precondition": scene.precondition,
        "token_id": wanted.id,
        "visible": scene.visibility(seen),
        "cascade": False,
        "many": False,
    }
    assert scene.outcome(lambda tx: scene.store._revoke_token(tx, **how)) == scene.outcome(
        lambda tx: SqlTokens._revoke_token(scene.store, tx, **how)
    )
