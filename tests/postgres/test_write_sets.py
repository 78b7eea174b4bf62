"""Creates and revocations that share a statement have the same outcomes as alone, one after the other."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, BOB, EVE, PLENTY, SYSTEM, Run, all_of, key, record
from tests.postgres.test_lost_answers import run, store_url, without_deadlocks
from tests.support.postgres import Home, SharedClusters
from tests.support.strategies import numbered_id
from watchword.domain.policies import root_policy
from watchword.domain.ports import Issue, Use
from watchword.domain.stores import PostgresUrl
from watchword.stores import open_store, prepare, rows
from watchword.stores.postgres import ADD, REVOKE
from watchword.stores.postgres.connections import Connection, connect
from watchword.stores.sql.transaction import ignore

__all__ = ["run"]  # a fixture of test_lost_answers

ACCOUNT, DELETED = "urn:li:account:1", "urn:li:account:2"
FAR = 2**52
# Tokens by number: 0 to 3 plain, 4 expired, 5 revoked, 6 with the child 7, 8 replaced by 9, 10 withdrawn, 11 of another
# actor, 12 of a service account, 13 with the revoked child 14. Higher ones are unknown. Nine of ANN are live.
_TOKENS: list[dict[str, Any]] = [
    *({} for _ in range(4)),
    {"expires_at": 1},
    {"revoked_at": 1},
    {},
    {"parent": numbered_id(6), "root": numbered_id(6)},
    {"replaced_by": numbered_id(9)},
    {"replaces": numbered_id(8), "root": numbered_id(8), "grace": 1},
    {},
    {"actor_urn": BOB, "owner_urn": ANN},
    {"actor_urn": ACCOUNT, "type": "SERVICE_ACCOUNT"},
    {},
    {"parent": numbered_id(13), "root": numbered_id(13), "revoked_at": 1},
]
_INSERT = """INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at, revoked_at, parent, root,
    replaces, replaced_by, grace) VALUES ($1, $2, 'x', $3, $4, 0, $5, $6, $7, $8, $9, $10, $11)"""
_LATER = ("revoked_at", "parent", "root", "replaces", "replaced_by", "grace")
_STATE = (
    "SELECT id, revoked_at IS NOT NULL, actor_urn, owner_urn, parent, root, expires_at FROM tokens ORDER BY 1",
    "SELECT target, actor, bearer_id, action, peer, request_id, detail FROM events ORDER BY seq",
    "SELECT actor, digest, kid, token_id FROM retries ORDER BY 1, 2",
    "SELECT kind, urn, sum(total) FROM token_totals GROUP BY 1, 2 HAVING sum(total) <> 0 ORDER BY 1, 2",
)


class Database:
    """A connection to a filled store, on which everything is rolled back."""

    def __init__(self, run: Run, connection: Connection, version: int) -> None:
        self.run = run
        self.connection = connection
        self.version = version

    def after(self, statement: str, batches: list[list[tuple[Any, ...]]]) -> tuple[list[Any], list[Any]]:
        """The outcomes of these batches, and the rows that they leave behind."""

        async def work() -> tuple[list[Any], list[Any]]:
            outcomes: list[Any] = []
            await self.connection.execute("BEGIN")
            for batch in batches:
                values = [*map(list, zip(*batch, strict=True)), *(["0"] if statement is REVOKE else [])]
                (said, *_) = await self.connection.fetchrow(statement, *values) or ()
                outcomes += said
            left = [[tuple(row) for row in await self.connection.fetch(sql)] for sql in _STATE]
            await self.connection.execute("ROLLBACK")
            return outcomes, left

        return self.run(work())

    def check(self, statement: str, writes: list[tuple[Any, ...]]) -> None:
        together = self.after(statement, [writes])
        assert together == self.after(statement, [[write] for write in writes])


@pytest.fixture
def filled(run: Run, database: Home) -> Iterator[Database]:
    place = store_url(database, database.address.port, 30)
    prepare(place)
    version, connection = run(fill(place))
    yield Database(run, connection, version)
    connection.terminate()
    run(asyncio.sleep(0))


async def fill(place: PostgresUrl) -> tuple[int, Connection]:
    store = await open_store(place, lambda: 0, ignore)
    await store.settle_keys(b"sealed salt", key(1), key(2))
    await store.apply_startup_policies(root_policy(ADMIN), ())
    version = (await store.policies()).version
    await store.close()
    connection = await connect(place)
    for number, fields in enumerate(_TOKENS):
        plain = {"type": "PERSONAL", "actor_urn": ANN, "owner_urn": ADMIN, "expires_at": FAR, **fields}
        first = [plain[name] for name in ("type", "actor_urn", "owner_urn", "expires_at")]
        if number != 10:
            await connection.execute(_INSERT, numbered_id(number), *first, *(fields.get(name) for name in _LATER))
    await connection.execute("INSERT INTO withdrawn (id, at) VALUES ($1, 0)", numbered_id(10))
    await connection.execute("INSERT INTO actors (urn, status) VALUES ($1, 'SUSPENDED')", EVE)
    await connection.execute(
        "INSERT INTO service_accounts VALUES ($1, 'a', NULL, 0, 'x', NULL), ($2, 'b', NULL, 0, 'x', 1)",
        ACCOUNT,
        DELETED,
    )
    await connection.execute("INSERT INTO retries VALUES ($1, 'new', 'k', 't', $2), ($1, 'old', 'k', 't', 0)", ANN, FAR)
    return version, connection


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
    st.sampled_from([("PERSONAL", ANN)] * 6 + [("PERSONAL", BOB), ("SERVICE_ACCOUNT", ACCOUNT)]
                    + [("SERVICE_ACCOUNT", DELETED), ("PERSONAL", EVE)]),
    st.sampled_from([None] * 6 + [0, 4, 5, 6, 9, 20]),
)  # fmt: skip
revocations = st.tuples(
    st.sampled_from([ANN, ANN, ANN, BOB, EVE]),
    bearers,
    versions,
    st.sampled_from([*range(4), *range(4), *range(len(_TOKENS) + 1)]),
    st.sampled_from([None, None, None, ANN, ADMIN, BOB]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
sets = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _id(number: int | None) -> str | None:
    return None if number is None else numbered_id(number)


def _origin(filled: Database, number: int, actor: str, bearer: int | None, age: int | None) -> tuple[Any, ...]:
    return (actor, _id(bearer), None if age is None else filled.version - age, "peer", f"request {number}")


@sets
@given(drawn=st.lists(creates, min_size=2, max_size=6))
@example(drawn=[(ANN, None, 0, key(1).kid, 11, None, new, ("PERSONAL", ANN), None) for new in (20, 21, 22)])
@example(
    drawn=[
        (ANN, None, 0, key(1).kid, PLENTY, digest, new, ("PERSONAL", ANN), None)
        for new, digest in ((20, None), (21, "a"), (22, "a"))
    ]
)
def test_creates_have_the_same_outcomes_together_as_alone(filled: Database, drawn: list[Any]) -> None:
    writes = []
    for number, (actor, bearer, age, kid, most, digest, new, (kind, of), parent) in enumerate(drawn):
        ties = {"created_with": _id(bearer), "parent": _id(parent), "root": _id(parent)}
        made = record(new, of, owner=actor, expires_at=FAR, **ties)
        retry = (None,) * 6 if digest is None else (ANN, digest, kid, made.id, FAR, None)
        values = list(rows.token_values(made)[:12])
        values[1] = kind
        issue = (*_origin(filled, number, actor, bearer, age), kid, most, "token.created", "{}", *retry)
        writes.append((*issue, *values, None, None))
    filled.check(ADD, writes)


PLAIN = (ANN, None, 0)
ANYONE = (None, False, False, False)


@sets
@given(drawn=st.lists(revocations, min_size=2, max_size=6))
@example(drawn=[(*PLAIN, 0, *ANYONE), (*PLAIN, 1, *ANYONE), (*PLAIN, 11, None, False, False, True)])
@example(drawn=[(*PLAIN, 0, *ANYONE), (*PLAIN, 0, *ANYONE)])
@example(drawn=[(*PLAIN, 7, *ANYONE), (*PLAIN, 6, *ANYONE)])
@example(drawn=[(ANN, 0, 0, 0, *ANYONE), (ANN, 0, 0, 1, *ANYONE), (ANN, 2, 0, 3, *ANYONE)])
def test_revocations_have_the_same_outcomes_together_as_alone(filled: Database, drawn: list[Any]) -> None:
    filled.check(
        REVOKE,
        [
            (*_origin(filled, number, *origin), numbered_id(token), *seen)
            for number, (*origin, token, visible, accounts, created, possession) in enumerate(drawn)
            for seen in [(visible, accounts, created, possession)]
        ],
    )


def test_concurrent_revocations_and_uses_of_the_same_tokens_do_not_deadlock(
    run: Run, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    with without_deadlocks(shared_clusters, tmp_path) as there:
        assert run(revoke_concurrently(there)) == 300


def test_tokens_that_another_session_locks_do_not_delay_the_revocation_of_others(
    run: Run, database: Home, tmp_path: Path
) -> None:
    prepare(there := store_url(database, database.address.port, 30))
    assert run(revoke_beside_locks(there)) == [True] * 8


async def revoke_beside_locks(there: PostgresUrl) -> list[bool]:
    """Revoke eight tokens of which the first four are locked until the others are revoked."""
    store, blocker = await open_store(replace(there, pool=8), lambda: 0, ignore), await connect(there)
    await store.settle_keys(b"sealed salt", key(1), key(2))
    await store.apply_startup_policies(root_policy(ADMIN), ())
    await all_of([store.add_token(SYSTEM, record(n), Issue(key(1).kid, PLENTY)) for n in range(8)])
    await blocker.execute("BEGIN")
    await blocker.fetch("SELECT 1 FROM tokens WHERE id = ANY ($1) FOR UPDATE", [numbered_id(n) for n in range(4)])
    locked = [asyncio.ensure_future(store.revoke_token(SYSTEM, numbered_id(n), None)) for n in range(4)]
    others = [await store.revoke_token(SYSTEM, numbered_id(n), None) for n in range(4, 8)]
    still = not any(one.done() for one in locked)
    await blocker.execute("ROLLBACK")
    outcomes = [*await asyncio.gather(*locked), *others]
    blocker.terminate()
    await store.close()
    return [still and isinstance(outcome, tuple) for outcome in outcomes]


async def revoke_concurrently(there: PostgresUrl) -> int:
    """Revoke 300 tokens by four stores, each in its own order, while they record uses; how many were revoked."""
    stores = [await open_store(replace(there, pool=4), lambda: 0, ignore) for _ in range(4)]
    await stores[0].settle_keys(b"sealed salt", key(1), key(2))
    await stores[0].apply_startup_policies(root_policy(ADMIN), ())
    await all_of([stores[0].add_token(SYSTEM, record(n), Issue(key(1).kid, PLENTY)) for n in range(300)])
    work: list[Any] = []
    for number, store in enumerate(stores):
        order = [numbered_id(n) for n in range(300)]
        random.Random(number).shuffle(order)
        work += [store.revoke_token(SYSTEM, token, None) for token in order]
        work += [store.record_uses(dict.fromkeys(order[n : n + 30], Use(1, 1, "n"))) for n in range(0, 300, 30)]
    outcomes = await all_of(work)
    for store in stores:
        await store.close()
    return sum(isinstance(outcome, tuple) for outcome in outcomes)
