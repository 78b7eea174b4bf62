"""Random sequences of lifecycle operations: every store matches the reference model."""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.harness import HOUR, SYSTEM, Run, StoreHarness, derived, record, successor
from tests.contract.lifecycle_model import TokenModel, observed_of
from tests.support.backends import NOW, Backend, StoreLocation
from tests.support.strategies import numbered_id
from watchword.basics.errors import Reason, Stale
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import Receipt, Selection, receipt
from watchword.tokens.filters import Condition, Field, Filter, Search
from watchword.tokens.rules import Issue, TokenRecord

EXAMPLES = 15
EVER = Filter(Field.STATUS, Condition.IN, ("ACTIVE", "EXPIRED", "REVOKED"))
VERBS = ("make", "derive", "derive", "rotate", "rotate", "use", "use", "revoke", "cascade", "end", "wait", "stale")
steps = st.tuples(st.sampled_from(VERBS), st.integers(0, 30), st.integers(0, 40), st.booleans())


@dataclass
class Sequence:
    """A sequence of writes, alternating between two stores on the same data, checked against the model."""

    run: Run
    harness: StoreHarness
    stores: tuple[Store, Store]
    law: TokenModel
    turn: int = 0

    @property
    def store(self) -> Store:
        return self.stores[self.turn % 2]

    def take(self, verb: str, pick: int, size: int, flag: bool) -> None:
        self.turn += 1
        known = list(self.law.all)
        chosen = known[pick % len(known)] if known else None
        self.harness.clock.now = self.law.now = self.law.now + (size if verb == "wait" else 0)
        if verb == "make" or chosen is None:
            self.make(None if flag or chosen is None else chosen, size)
        elif verb != "wait":
            getattr(self, verb)(chosen, size, flag)

    def kept(self, token: str) -> TokenRecord:
        found = self.run(self.store.get_token(token))
        assert found is not None
        return found

    def next(self) -> int:
        return len(self.law.all)

    def attempt(self, work: Any) -> bool:
        """Whether the write was done; False if it was stale."""
        try:
            self.run(work)
        except Stale:
            return False
        return True

    def make(self, bearer: str | None, size: int) -> None:
        made = record(self.next(), created_with=bearer, expires_at=None if size > 35 else self.law.now + size)
        precondition = self.harness.precondition(made.actor_urn, self.law.all[bearer].made if bearer else None)
        assert self.attempt(self.store.add_token(precondition, made, ISSUE)) == (
            bearer is None or self.law.is_alive(bearer)
        )
        if bearer is None or self.law.is_alive(bearer):
            self.law.add(made)

    def derive(self, chosen: str, size: int, flag: bool) -> None:
        parent = self.kept(chosen)
        end = parent.expires_at if flag else self.law.now + size
        child = derived(self.next(), parent, expires_at=end)
        fits = parent.expires_at is None or (end is not None and end <= parent.expires_at)
        may = self.law.is_alive(chosen) and fits and parent.grace is None
        precondition = self.harness.precondition(parent.actor_urn, parent)
        assert self.attempt(self.store.add_token(precondition, child, ISSUE)) == may
        if may:
            self.law.add(child)

    def rotate(self, chosen: str, size: int, flag: bool, seen: TokenRecord | None = None) -> None:
        old = self.kept(chosen)
        if old.grace is not None or old.replaced_at is not None:
            return  # the domain rejects these before calling the store
        wait = self.law.now + size if old.expires_at is None else min(self.law.now + size, old.expires_at)
        parent = self.law.all.get(old.parent or "")
        end = parent.end if parent is not None else self.law.now + HOUR
        new = successor(self.next(), old, expires_at=wait, grace=size // 2, full_end=end)
        may = self.law.is_alive(chosen) and (seen is None or observed_of(seen) == observed_of(old))
        assert self.attempt(self.store.rotate_token(SYSTEM, seen or old, new, ISSUE)) == may
        if may:
            self.law.rotate(chosen, new)

    def stale(self, chosen: str, size: int, flag: bool) -> None:
        """Rotate with an outdated view of the token."""
        seen = self.kept(chosen)
        self.rotate(chosen, size, flag)
        self.rotate(chosen, size, flag, seen)

    def use(self, chosen: str, size: int, flag: bool) -> None:
        waiting = [token for token, state in self.law.all.items() if state.grace is not None]
        token = waiting[size % len(waiting)] if waiting and flag else chosen
        self.run(self.store.note_first_use(SYSTEM, token))
        self.law.use_first(token)

    def revoke(self, chosen: str, size: int, flag: bool, *, cascade: bool = False) -> None:
        dead = self.law.to_revoke([chosen], cascade=cascade)
        work = self.store.revoke_token(SYSTEM, chosen, None, cascade=cascade)
        if not dead:
            assert self.harness.fault_of(work).reason is Reason.ALREADY_REVOKED
            return
        assert self.run(work) == (self.law.now, len(dead))
        self.law.revoke_all(dead)

    def cascade(self, chosen: str, size: int, flag: bool) -> None:
        self.revoke(chosen, size, flag, cascade=True)

    def end(self, chosen: str, size: int, flag: bool) -> None:
        ids = (chosen, numbered_id(size), numbered_id(size // 2))
        dead = self.law.to_revoke(ids, cascade=flag, expired=False)
        told: Receipt = self.run(self.store.revoke_tokens(SYSTEM, Selection(ids=ids, cascade=flag)))
        assert told == receipt(dead, self.law.now)
        self.law.revoke_all(dead)

    def compare(self) -> None:
        page = self.run(self.store.search(Search(count=1_000, filters=(EVER,))))
        found = {row.id: row for row in page.rows}
        assert {i: observed_of(row) for i, row in found.items()} == {
            i: state.observed() for i, state in self.law.all.items()
        }
        assert self.harness.total() == sum(state.revoked_at is None for state in self.law.all.values())
        for row in page.rows:
            if row.parent is not None and row.is_live(self.law.now):
                parent = found[row.parent]
                assert parent.is_live(self.law.now)
                assert parent.expires_at is None or (row.expires_at or parent.expires_at + 1) <= parent.expires_at


ISSUE = Issue("kid-1", 10_000)


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
# An expired unused successor is shortened with its parent.
@example(
    walked=[
        ("make", 0, 1, False),
        ("derive", 0, 1, False),
        ("rotate", 0, 0, False),
        ("rotate", 0, 1, False),
        ("rotate", 1, 0, False),
        ("use", 0, 1, True),
    ]
)
@given(walked=st.lists(steps, min_size=5, max_size=30))
def test_store_matches_the_lifecycle_model(
    backend: Backend, run: Run, walked: list[tuple[str, int, int, bool]]
) -> None:
    backend.release()  # of the example before
    location: StoreLocation = backend.location()
    stores = (run(location.open()), run(location.open()))
    try:
        harness = StoreHarness(run, stores[0], location.clock)
        harness.first_start()
        walk = Sequence(run, harness, stores, TokenModel(NOW))
        for step in walked:
            walk.take(*step)
            walk.compare()
        assert location.problems() == []
    finally:
        for store in stores:
            run(store.close())


def test_model_revokes_both_tokens_of_a_rotation() -> None:
    law = TokenModel(NOW)
    old = record(1)
    law.add(old)
    law.rotate(old.id, successor(2, old)._replace(full_end=NOW + HOUR))
    assert (
        law.to_revoke([old.id], cascade=False)
        == {old.id, numbered_id(2)}
        == law.to_revoke([numbered_id(2)], cascade=False)
    )
    law.now = NOW + HOUR
    assert law.to_revoke([numbered_id(2)], cascade=False) == {numbered_id(2)}
