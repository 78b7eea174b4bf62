from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.contract.given import ANN, BOB, EVE, HOUR, PLENTY, SYSTEM, Given, Run, all_of, key, where
from tests.support.backends import NOW, Backend, Hand
from tests.support.laws import listed, matches, value_of
from tests.support.strategies import families, names, numbered_id, record_lists, searches, sorts
from watchword.domain.actors import WritePrecondition
from watchword.domain.filters import Condition, Field, Filter, Search, Sort, SortField
from watchword.domain.ports import Issue, Page, Store, Use
from watchword.domain.tokens import TokenRecord

CASES = 25
ISSUE = Issue(key(1).kid, PLENTY)
OF_STATUS = tuple(where(Field.STATUS, word) for word in ("ACTIVE", "EXPIRED", "REVOKED"))


async def fill(store: Store, clock: Hand, among: list[TokenRecord]) -> None:
    """Brings a new store to hold just these records, by the port's own methods."""
    await store.settle_keys(b"salt", key(1), key(2))
    bare = [record._replace(last_used_at=None, revoked_at=None, use_count=0, last_network=None) for record in among]
    parents = {record.id: record for record in bare if record.parent is None}
    assert set(await all_of(store.add_token(SYSTEM, one, ISSUE) for one in parents.values())) <= {None}
    for record in bare:
        if record.parent is not None:
            actor = parents[record.parent].actor_urn
            version = (await store.actor_snapshot(actor)).policy_version
            await store.add_token(WritePrecondition(actor, record.parent, version, "127.0.0.1", ""), record, ISSUE)
    await store.record_uses(
        {
            record.id: Use(record.last_used_at, record.use_count, record.last_network)
            for record in among
            if record.last_used_at is not None and record.last_network is not None
        }
    )
    for record in among:
        if record.revoked_at is not None:
            clock.now = record.revoked_at
            await store.revoke_token(SYSTEM, record.id, None)
    clock.now = NOW


@settings(max_examples=CASES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@drawn(among=record_lists, data=st.data())
def test_every_search_finds_what_the_law_finds_in_the_same_order(
    run: Run, backend: Backend, among: list[TokenRecord], data: st.DataObject
) -> None:
    place = backend.place()
    wanted = data.draw(st.lists(searches(among), min_size=1, max_size=12))

    async def answers() -> list[Page]:
        store = await place.open()
        try:
            await fill(store, place.clock, among)
            return [await store.search(search) for search in wanted]
        finally:
            await store.close()

    for search, page in zip(wanted, run(answers()), strict=True):
        assert (page.total, page.rows) == listed(among, search, NOW), search


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@drawn(among=record_lists, data=st.data())
def test_search_for_some_record_fields_returns_these_fields_only(
    run: Run, backend: Backend, among: list[TokenRecord], data: st.DataObject
) -> None:
    place = backend.place()
    wanted = data.draw(st.lists(searches(among), min_size=1, max_size=6))
    fields = data.draw(st.sets(st.sampled_from(TokenRecord._fields)))
    names = [name for name in TokenRecord._fields if name in fields | {"id"}]

    async def answers() -> list[tuple[Page, Page]]:
        store = await place.open()
        try:
            await fill(store, place.clock, among)
            return [
                (await store.search(one), await store.search(replace(one, record_fields=frozenset(fields))))
                for one in wanted
            ]
        finally:
            await store.close()

    for whole, parts in run(answers()):
        assert parts.total == whole.total
        assert [part._asdict() for part in parts.rows] == [
            {name: getattr(row, name) for name in names} for row in whole.rows
        ]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@drawn(among=families(min_size=3))
def test_every_order_is_the_laws(run: Run, backend: Backend, among: list[TokenRecord]) -> None:
    place = backend.place()
    orders = [
        Search(sort=Sort(field, descending), filters=filters, count=1_000)
        for field in SortField
        for descending in (True, False)
        for filters in ((), (Filter(Field.STATUS, Condition.EXISTS, ()),))
    ]

    async def answers() -> list[Page]:
        store = await place.open()
        try:
            await fill(store, place.clock, among)
            return [await store.search(search) for search in orders]
        finally:
            await store.close()

    for search, page in zip(orders, run(answers()), strict=True):
        assert (page.total, page.rows) == listed(among, search, NOW), search


def test_without_a_sort_the_latest_end_comes_first_and_the_endless_last(given: Given) -> None:
    ends = {1: NOW + 5, 2: None, 3: NOW + 9, 4: NOW + 5, 5: NOW - 1}
    for number, end in ends.items():
        given.token(number, expires_at=end)
    by_five = sorted([numbered_id(1), numbered_id(4)])
    assert given.ids() == [numbered_id(3), *by_five, numbered_id(5), numbered_id(2)]


@pytest.mark.parametrize("sort", [Sort(field, down) for field in SortField for down in (True, False)], ids=str)
def test_the_pages_of_a_list_are_the_list_in_pieces(given: Given, sort: Sort) -> None:
    for number in range(25):
        given.token(number, ANN if number % 3 else BOB, owner=EVE, name=f"n{number % 4}", expires_at=NOW + number % 2)
    whole = given.ids(sort=sort, count=1_000)
    for size in (1, 4, 7):
        assert [id_ for start in range(0, 25, size) for id_ in given.ids(sort=sort, start=start, count=size)] == whole
    assert len(set(whole)) == 25


def test_beyond_the_last_row_there_are_none_and_the_total_stays(given: Given) -> None:
    given.token(1)
    for start in (1, 2, 2**31 - 1, 2**63 - 1):
        assert given.search(start=start) == Page(1, ())
    assert given.search(count=0) == Page(1, ())


@pytest.mark.parametrize("field", [Field.ACTOR_URN, Field.OWNER_URN])
def test_what_is_ones_own_is_all_that_is_found_whatever_the_filters_say(given: Given, field: Field) -> None:
    mine = {given.token(1, ANN, owner=BOB).id, given.token(2, BOB, owner=ANN).id, given.token(3, ANN).id}
    given.token(4, BOB)
    given.token(5, EVE, owner=BOB)
    everything = given.search().rows
    wide: list[tuple[Filter, ...]] = [
        (),
        (where(field, ANN),),
        (where(field, BOB),),
        (where(field, BOB, negated=True),),
        (where(field, ANN, negated=True),),
        (where(field, ANN, BOB, EVE, condition=Condition.IN),),
        (where(field, "urn:", condition=Condition.START_WITH),),
        (where(field, ANN.upper(), condition=Condition.IEQUAL),),
        (where(field, condition=Condition.EXISTS),),
        (where(Field.STATUS, "ACTIVE", "REVOKED", "EXPIRED"),),
    ]
    for filters in wide:
        page = given.search(*filters, own=(field, ANN))
        assert {row.id for row in page.rows} <= mine
        search = Search(filters=filters, own=(field, ANN))
        assert page.total == len(page.rows) == sum(matches(search, row, NOW) for row in everything)
    assert given.total() == 5


def test_revoked_tokens_are_listed_only_where_the_status_is_named(given: Given) -> None:
    live, dead, gone = given.token(1), given.token(2, expires_at=NOW), given.token(3)
    given.revoke(gone)
    assert set(given.ids()) == {live.id, dead.id}
    assert [given.ids(status) for status in OF_STATUS] == [[live.id], [dead.id], [gone.id]]
    assert set(given.ids(where(Field.STATUS, "REVOKED", negated=True))) == {live.id, dead.id}
    assert set(given.ids(where(Field.STATUS, condition=Condition.EXISTS))) == {live.id, dead.id, gone.id}
    assert given.ids(where(Field.REVOKED_AT, NOW)) == []
    assert given.ids(where(Field.REVOKED_AT, NOW), OF_STATUS[2]) == [gone.id]


def test_the_status_follows_the_clock(given: Given) -> None:
    token = given.token(1, expires_at=NOW + HOUR)
    assert given.ids(OF_STATUS[0]) == [token.id]
    given.clock.now = NOW + HOUR
    assert given.ids(OF_STATUS[0]) == []
    assert given.ids(OF_STATUS[1]) == [token.id]


@pytest.mark.parametrize("negated", [False, True])
def test_a_filter_takes_a_thousand_values(given: Given, negated: bool) -> None:
    for number in range(30):
        given.token(number)
    values = [numbered_id(number) for number in range(10, 1_010)]
    many = where(Field.ID, *values, condition=Condition.IN, negated=negated)
    assert given.search(many, count=0).total == (10 if negated else 20)
    parts = where(Field.NAME, *(f"ken {n}" for n in range(10, 1_010)), condition=Condition.END_WITH, negated=negated)
    assert given.total(parts) == sum(matches(parts, row, NOW) for row in given.search(count=1_000).rows)


@pytest.mark.parametrize("field", [Field.ID, Field.URN, Field.NAME, Field.ACTOR_URN])
@pytest.mark.parametrize("condition", [Condition.IEQUAL, Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH])
def test_several_values_are_ored_under_every_condition_on_text(
    given: Given, field: Field, condition: Condition
) -> None:
    tokens = [given.token(number, ANN if number else BOB) for number in range(3)]
    values = [str(value_of(token, field, NOW)) for token in tokens[:2]]
    several = where(field, *values, condition=condition)
    assert set(given.ids(several)) == {token.id for token in tokens if matches(several, token, NOW)}
    assert given.total(several) >= 2


@pytest.mark.parametrize("others", [(), ("no such thing",)], ids=["alone", "among others"])
@pytest.mark.parametrize("condition", [Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH])
def test_nothing_at_all_is_a_part_of_every_text_and_of_none_that_is_missing(
    given: Given, condition: Condition, others: tuple[str, ...]
) -> None:
    given.token(1, description="ïx")
    given.token(2, description="")
    given.token(3, description=None)
    wanted = Filter(Field.DESCRIPTION, condition, ("", *others))
    assert sorted(given.ids(wanted)) == sorted([numbered_id(1), numbered_id(2)])
    assert given.ids(wanted._replace(negated=True)) == []


def test_fifty_filters_are_anded(given: Given) -> None:
    for number in range(5):
        given.token(number)
    filters = [where(Field.NAME, f"token {n}", negated=True) for n in range(4)]
    filters += [where(Field.NAME, "oke", str(n), condition=Condition.CONTAIN) for n in range(46)]
    assert given.ids(*filters) == [numbered_id(4)]


@pytest.mark.parametrize("name", ["100%", "a_b", "a'b", 'a"b', "a\\b", "İ", "ß", "😀", "e\u0301", "é", " x ", "\ufeff"])
def test_no_character_has_a_meaning_of_its_own(given: Given, name: str) -> None:
    given.token(1, name=f"<{name}>")
    given.token(2, name="<other>")
    for condition, value in (
        (Condition.EQUAL, f"<{name}>"),
        (Condition.IEQUAL, f"<{name}>"),
        (Condition.CONTAIN, name),
        (Condition.START_WITH, f"<{name}"),
        (Condition.END_WITH, f"{name}>"),
    ):
        assert given.ids(where(Field.NAME, value, condition=condition)) == [numbered_id(1)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@drawn(name=names, sort=sorts)
def test_any_name_is_found_again(given: Given, name: str, sort: Sort) -> None:
    token = given.token(given.total(), name=name)
    assert given.kept(token) == token
    assert token.id in given.ids(where(Field.NAME, name), sort=sort, count=1_000)
    same = where(Field.NAME, name.lower(), condition=Condition.IEQUAL)
    assert (token.id in given.ids(same, count=1_000)) == matches(same, token, NOW)
