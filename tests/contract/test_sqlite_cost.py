"""Operations whose cost must not grow with the store. SQLite counts steps, scanned rows, sorts and pages."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from bench.fill import fill, filled_actor, is_revoked
from tests.contract.harness import ADMIN, key
from tests.support.backends import NOW, AdjustableClock
from tests.support.costs import Cost, Watched, operations
from watchword.access.actor_rules import ActorSearch
from watchword.access.actor_store import known_actors_sql
from watchword.authority.policies import root_policy
from watchword.database.sqlite.database import DIALECT, sqlite_text
from watchword.journal.events import Cursor, EventSearch
from watchword.journal.store import events_sql
from watchword.tokens.filters import Condition, Field, Filter, Search

FEW, MANY = 1_000, 100_000
ACTORS = 20
PAGE = 20
UNUSED = 10**9
OPERATIONS = sorted(operations(NOW, ACTORS, UNUSED))

Costs = dict[int, dict[str, Cost]]


def measure(folder: Path, size: int) -> dict[str, Cost]:
    path = folder / f"{size}.db"
    fill(path, size, now=NOW, actors=ACTORS)
    with asyncio.Runner() as runner, Watched(runner.run, path, AdjustableClock()) as watched:
        runner.run(watched.store.settle_keys(b"salt", key(1), key(2)))
        runner.run(watched.store.apply_start(root_policy(ADMIN), ()))
        for name, work in operations(NOW, ACTORS, UNUSED + 1).items():
            if name not in {"add_token", "revoke_token"}:  # run once before, to warm the caches
                runner.run(work(watched.store))
        return {name: watched.cost(work(watched.store)) for name, work in operations(NOW, ACTORS, UNUSED).items()}


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Costs:
    folder = tmp_path_factory.mktemp("costs")
    return {size: measure(folder, size) for size in (FEW, MANY)}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_takes_constant_steps(costs: Costs, operation: str) -> None:
    few, many = costs[FEW][operation], costs[MANY][operation]
    assert few.steps > 0
    assert abs(many.steps - few.steps) <= 5


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_does_not_scan_or_sort(costs: Costs, operation: str) -> None:
    few, many = costs[FEW][operation], costs[MANY][operation]
    # The first page of all tokens reads an index from its start, one entry per row.
    assert many.scanned == few.scanned == (PAGE - 1 if operation == "first page of all" else 0)
    assert many.sorted == (1 if operation == "policies" else 0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_reads_a_logarithmic_number_of_pages(costs: Costs, operation: str) -> None:
    few, many = costs[FEW][operation], costs[MANY][operation]
    assert few.pages > 0
    assert many.pages <= 2 * few.pages


def test_counters_detect_a_full_scan(tmp_path: Path) -> None:
    for size in (FEW, 10 * FEW):
        fill(tmp_path / f"{size}.db", size, now=NOW, actors=ACTORS)
    counted = {}
    for size in (FEW, 10 * FEW):
        with asyncio.Runner() as runner, Watched(runner.run, tmp_path / f"{size}.db", AdjustableClock()) as watched:
            wide = Search(filters=(Filter(Field.ACTOR_URN, Condition.EXISTS, ()),))
            walk = watched.store._db.read(lambda c: c.execute("SELECT count(*) FROM tokens").get)
            counted[size] = watched.cost(walk)
            assert runner.run(watched.store.search(wide)).total == sum(not is_revoked(n) for n in range(size))
    assert counted[10 * FEW].pages > 5 * counted[FEW].pages


def test_default_list_uses_an_ordered_index(tmp_path: Path) -> None:
    path = tmp_path / "plan.db"
    fill(path, FEW, now=NOW, actors=ACTORS)
    actor = filled_actor(3, ACTORS)
    own = Search(filters=(Filter(Field.ACTOR_URN, Condition.EQUAL, (actor,)),), own=(Field.ACTOR_URN, actor))
    by = Search(filters=(Filter(Field.OWNER_URN, Condition.EQUAL, (actor,)),), own=(Field.OWNER_URN, actor))
    with asyncio.Runner() as runner, Watched(runner.run, path, AdjustableClock()) as watched:
        for search, index in ((Search(), "tokens_all"), (own, "tokens_actor"), (by, "tokens_owner")):
            plan = watched.plan(watched.cost(watched.store.search(search)))
            assert any(f"INDEX {index}" in step for step in plan), plan
            assert not any("TEMP B-TREE" in step for step in plan), plan


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    path = tmp_path_factory.mktemp("plans") / "watchword.db"
    fill(path, FEW, now=NOW, actors=ACTORS)
    with asyncio.Runner() as runner, Watched(runner.run, path, AdjustableClock()) as made:
        runner.run(made.store.settle_keys(b"salt", key(1), key(2)))
        yield made


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "first page of all"])
def test_no_plan_scans_the_tokens_table(watched: Watched, operation: str) -> None:
    cost = watched.cost(operations(NOW, ACTORS, UNUSED)[operation](watched.store))
    plan = watched.plan(cost)
    assert plan
    assert not any(step.startswith("SCAN tokens") or "TEMP B-TREE" in step for step in plan if operation != "policies")


@pytest.mark.parametrize(
    ("search", "index"),
    [
        (EventSearch(), "events_at"),
        (EventSearch(actors=(ADMIN,)), "events_actor"),
        (EventSearch(actions=("token.revoked",)), "events_action"),
        (EventSearch(targets=("x",)), "events_target"),
        (EventSearch(since=NOW, until=NOW + 1), "events_at"),
        (EventSearch(actors=(ADMIN,), since=NOW, after=Cursor(NOW, 7)), "events_actor"),
    ],
    ids=str,
)
def test_event_page_uses_an_ordered_index(watched: Watched, search: EventSearch, index: str) -> None:
    statement, bound = events_sql(search, DIALECT)
    with closing(apsw.Connection(str(watched.path))) as file:
        plan = [str(row[3]) for row in file.execute(f"EXPLAIN QUERY PLAN {sqlite_text(statement)}", tuple(bound))]
    assert any(f"INDEX {index}" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize("search", [ActorSearch(), ActorSearch(after=ADMIN, prefix="urn:li:corpuser:")], ids=str)
def test_known_actors_page_reads_one_page_of_each_index(watched: Watched, search: ActorSearch) -> None:
    statement, bound = known_actors_sql(search, DIALECT)
    with closing(apsw.Connection(str(watched.path))) as file:
        file.create_scalar_function("now_ms", lambda *_: NOW, 0)
        plan = [str(row[3]) for row in file.execute(f"EXPLAIN QUERY PLAN {sqlite_text(statement)}", tuple(bound))]
    walked = [step for step in plan if step.startswith("SCAN") and ("token" in step or "member" in step)]
    assert walked == []
    assert any(step.startswith("SEARCH token_totals USING PRIMARY KEY (urn>? AND urn<?)") for step in plan)
    live = [step for step in plan if step.startswith("SEARCH tokens ")]
    assert [step.partition("(")[2] for step in live] == [
        "actor_urn=? AND expires_at=?)",
        "actor_urn=? AND expires_at>?)",
    ]
    assert all("INDEX tokens_actor" in step for step in live)
    assert any(step.startswith("SEARCH group_members USING PRIMARY KEY (actor_urn>? AND actor_urn<?)") for step in plan)
