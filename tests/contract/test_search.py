import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ANN, BOB, EVE, HOUR, PLENTY, SYSTEM, Run, StoreHarness, all_of, key, where
from tests.support.backends import NOW, Backend, SettableClock
from tests.support.search_reference import listed, matches, value_of
from tests.support.strategies import families, names, numbered_id, record_lists, searches, sorts
from watchword.access.actor_rules import ProfileField
from watchword.authority.callers import ActorStatus
from watchword.authority.limits import Limits
from watchword.journal.preconditions import WritePrecondition
from watchword.stores.joined import Store
from watchword.tokens.counts import Use
from watchword.tokens.filters import JSON_FIELDS, Condition, Field, Filter, Page, Search, Sort, SortField
from watchword.tokens.rules import Issue, TokenRecord

CASES = 25
ISSUE = Issue(key(1).kid, PLENTY)
OF_STATUS = tuple(where(Field.STATUS, word) for word in ("ACTIVE", "EXPIRED", "REVOKED"))


async def fill(store: Store, clock: SettableClock, among: list[TokenRecord]) -> None:
    """Fill a new store with exactly these records through its port."""
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
@given(among=record_lists, data=st.data())
def test_search_matches_the_reference(
    run: Run, backend: Backend, among: list[TokenRecord], data: st.DataObject
) -> None:
    backend.release()  # of the example before
    location = backend.location()
    wanted = data.draw(st.lists(searches(among), min_size=1, max_size=12))

    async def answers() -> list[Page]:
        store = await location.open()
        try:
            await fill(store, location.clock, among)
            return [await store.search(search) for search in wanted]
        finally:
            await store.close()

    for search, page in zip(wanted, run(answers()), strict=True):
        assert (page.total, page.rows) == listed(among, search, NOW), search


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(among=record_lists, data=st.data())
def test_search_for_some_record_fields_returns_these_fields_only(
    run: Run, backend: Backend, among: list[TokenRecord], data: st.DataObject
) -> None:
    backend.release()  # of the example before
    location = backend.location()
    wanted = data.draw(st.lists(searches(among), min_size=1, max_size=6))
    fields = data.draw(st.sets(st.sampled_from(TokenRecord._fields)))
    names = [name for name in TokenRecord._fields if name in fields | {"id"}]

    async def answers() -> list[tuple[Page, Page]]:
        store = await location.open()
        try:
            await fill(store, location.clock, among)
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
@given(among=record_lists, data=st.data())
def test_rows_as_json_equal_the_records(
    run: Run, backend: Backend, among: list[TokenRecord], data: st.DataObject
) -> None:
    backend.release()  # of the example before
    location = backend.location()
    wanted = data.draw(st.lists(searches(among), min_size=1, max_size=6))
    fields = data.draw(st.permutations(sorted(JSON_FIELDS, key=str)).map(tuple)), (Field.NAME, Field.URN)

    async def answers() -> list[tuple[Page, Page, tuple[Field, ...]]]:
        store = await location.open()
        try:
            await fill(store, location.clock, among)
            return [
                (await store.search(one), await store.search(replace(one, json_fields=some)), some)
                for one in wanted
                for some in fields
            ]
        finally:
            await store.close()

    for records, shown, some in run(answers()):
        expected = [{field.word: value_of(row, field, NOW) for field in some} for row in records.rows]
        assert shown.json is not None
        assert shown.total == records.total
        assert shown.json.number == len(expected)
        assert [list(row.items()) for row in json.loads(shown.json.text)] == [list(row.items()) for row in expected]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(among=families(min_size=3))
def test_every_sort_order_matches_the_reference(run: Run, backend: Backend, among: list[TokenRecord]) -> None:
    backend.release()  # of the example before
    location = backend.location()
    orders = [
        Search(sort=Sort(field, descending), filters=filters, count=1_000)
        for field in SortField
        for descending in (True, False)
        for filters in ((), (Filter(Field.STATUS, Condition.EXISTS, ()),))
    ]

    async def answers() -> list[Page]:
        store = await location.open()
        try:
            await fill(store, location.clock, among)
            return [await store.search(search) for search in orders]
        finally:
            await store.close()

    for search, page in zip(orders, run(answers()), strict=True):
        assert (page.total, page.rows) == listed(among, search, NOW), search


def test_default_sort_is_latest_expiry_first_and_no_expiry_last(harness: StoreHarness) -> None:
    ends = {1: NOW + 5, 2: None, 3: NOW + 9, 4: NOW + 5, 5: NOW - 1}
    for number, end in ends.items():
        harness.token(number, expires_at=end)
    by_five = sorted([numbered_id(1), numbered_id(4)])
    assert harness.ids() == [numbered_id(3), *by_five, numbered_id(5), numbered_id(2)]


@pytest.mark.parametrize("sort", [Sort(field, down) for field in SortField for down in (True, False)], ids=str)
def test_pages_are_slices_of_the_full_list(harness: StoreHarness, sort: Sort) -> None:
    for number in range(25):
        harness.token(number, ANN if number % 3 else BOB, owner=EVE, name=f"n{number % 4}", expires_at=NOW + number % 2)
    whole = harness.ids(sort=sort, count=1_000)
    for size in (1, 4, 7):
        assert [id_ for start in range(0, 25, size) for id_ in harness.ids(sort=sort, start=start, count=size)] == whole
    assert len(set(whole)) == 25


def test_page_beyond_the_last_row_is_empty(harness: StoreHarness) -> None:
    harness.token(1)
    for start in (1, 2, 2**31 - 1, 2**63 - 1):
        assert harness.search(start=start) == Page(1, ())
    assert harness.search(count=0) == Page(1, ())


@pytest.mark.parametrize("field", [Field.ACTOR_URN, Field.OWNER_URN])
def test_own_constraint_cannot_be_widened_by_filters(harness: StoreHarness, field: Field) -> None:
    mine = {harness.token(1, ANN, owner=BOB).id, harness.token(2, BOB, owner=ANN).id, harness.token(3, ANN).id}
    harness.token(4, BOB)
    harness.token(5, EVE, owner=BOB)
    everything = harness.search().rows
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
        page = harness.search(*filters, own=(field, ANN))
        assert {row.id for row in page.rows} <= mine
        search = Search(filters=filters, own=(field, ANN))
        assert page.total == len(page.rows) == sum(matches(search, row, NOW) for row in everything)
    assert harness.total() == 5


def test_revoked_tokens_are_listed_only_with_a_status_filter(harness: StoreHarness) -> None:
    live, dead, gone = harness.token(1), harness.token(2, expires_at=NOW), harness.token(3)
    harness.revoke(gone)
    assert set(harness.ids()) == {live.id, dead.id}
    assert [harness.ids(status) for status in OF_STATUS] == [[live.id], [dead.id], [gone.id]]
    assert set(harness.ids(where(Field.STATUS, "REVOKED", negated=True))) == {live.id, dead.id}
    assert set(harness.ids(where(Field.STATUS, condition=Condition.EXISTS))) == {live.id, dead.id, gone.id}
    assert harness.ids(where(Field.REVOKED_AT, NOW)) == []
    assert harness.ids(where(Field.REVOKED_AT, NOW), OF_STATUS[2]) == [gone.id]


def test_status_follows_the_clock(harness: StoreHarness) -> None:
    token = harness.token(1, expires_at=NOW + HOUR)
    assert harness.ids(OF_STATUS[0]) == [token.id]
    harness.clock.now = NOW + HOUR
    assert harness.ids(OF_STATUS[0]) == []
    assert harness.ids(OF_STATUS[1]) == [token.id]


@pytest.mark.parametrize("negated", [False, True])
def test_filter_accepts_a_thousand_values(harness: StoreHarness, negated: bool) -> None:
    for number in range(30):
        harness.token(number)
    values = [numbered_id(number) for number in range(10, 1_010)]
    many = where(Field.ID, *values, condition=Condition.IN, negated=negated)
    assert harness.search(many, count=0).total == (10 if negated else 20)
    parts = where(Field.NAME, *(f"ken {n}" for n in range(10, 1_010)), condition=Condition.END_WITH, negated=negated)
    assert harness.total(parts) == sum(matches(parts, row, NOW) for row in harness.search(count=1_000).rows)


@pytest.mark.parametrize("field", [Field.ID, Field.URN, Field.NAME, Field.ACTOR_URN])
@pytest.mark.parametrize("condition", [Condition.IEQUAL, Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH])
def test_text_values_are_ored_under_every_condition(harness: StoreHarness, field: Field, condition: Condition) -> None:
    tokens = [harness.token(number, ANN if number else BOB) for number in range(3)]
    values = [str(value_of(token, field, NOW)) for token in tokens[:2]]
    several = where(field, *values, condition=condition)
    assert set(harness.ids(several)) == {token.id for token in tokens if matches(several, token, NOW)}
    assert harness.total(several) >= 2


@pytest.mark.parametrize("others", [(), ("no such thing",)], ids=["alone", "among others"])
@pytest.mark.parametrize("condition", [Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH])
def test_empty_text_matches_every_present_value(
    harness: StoreHarness, condition: Condition, others: tuple[str, ...]
) -> None:
    harness.token(1, description="ïx")
    harness.token(2, description="")
    harness.token(3, description=None)
    wanted = Filter(Field.DESCRIPTION, condition, ("", *others))
    assert sorted(harness.ids(wanted)) == sorted([numbered_id(1), numbered_id(2)])
    assert harness.ids(wanted._replace(negated=True)) == []


def test_fifty_filters_are_anded(harness: StoreHarness) -> None:
    for number in range(5):
        harness.token(number)
    filters = [where(Field.NAME, f"token {n}", negated=True) for n in range(4)]
    filters += [where(Field.NAME, "oke", str(n), condition=Condition.CONTAIN) for n in range(46)]
    assert harness.ids(*filters) == [numbered_id(4)]


@pytest.mark.parametrize("name", ["100%", "a_b", "a'b", 'a"b', "a\\b", "İ", "ß", "😀", "e\u0301", "é", " x ", "\ufeff"])
def test_special_characters_are_literal(harness: StoreHarness, name: str) -> None:
    harness.token(1, name=f"<{name}>")
    harness.token(2, name="<other>")
    for condition, value in (
        (Condition.EQUAL, f"<{name}>"),
        (Condition.IEQUAL, f"<{name}>"),
        (Condition.CONTAIN, name),
        (Condition.START_WITH, f"<{name}"),
        (Condition.END_WITH, f"{name}>"),
    ):
        assert harness.ids(where(Field.NAME, value, condition=condition)) == [numbered_id(1)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, sort=sorts)
def test_any_name_is_found(harness: StoreHarness, name: str, sort: Sort) -> None:
    token = harness.token(harness.total(), name=name)
    assert harness.stored(token) == token
    assert token.id in harness.ids(where(Field.NAME, name), sort=sort, count=1_000)
    same = where(Field.NAME, name.lower(), condition=Condition.IEQUAL)
    assert (token.id in harness.ids(same, count=1_000)) == matches(same, token, NOW)


def test_text_finds_names_of_actors_scopes_and_suspended_actors(harness: StoreHarness) -> None:
    nightly = harness.token(
        1, ANN, owner=BOB, name="Nightly ÉTÉ", limits=Limits(scopes=("repo:read", "VIEW_AUDIT_LOG"))
    )
    plain = harness.token(2, BOB, description="Runs on Sunday")
    bare = harness.token(3, EVE, owner=EVE, limits=Limits(scopes=()))
    harness.run(harness.store.set_profile(SYSTEM, BOB, {ProfileField.DISPLAY_NAME: "Robert ÉMILE Ŝmith"}))
    harness.run(harness.store.set_actor_status(SYSTEM, EVE, ActorStatus.SUSPENDED))

    def text(*values: str, negated: bool = False) -> set[str]:
        return set(harness.ids(where(Field.TEXT, *values, condition=Condition.CONTAIN, negated=negated)))

    assert text("nightly été") == {nightly.id}
    assert text("SUNDAY") == {plain.id}
    assert text("émile ŝ") == text("ROBERT Émile") == {nightly.id, plain.id}
    assert text(bare.id.swapcase()) == text("CORPUSER:eve") == {bare.id}
    assert text("sunday", "NIGHTLY") == {nightly.id, plain.id}
    assert text("robert", negated=True) == {bare.id}
    assert text("%", "_") == set()
    assert harness.ids(where(Field.SCOPE, "repo:read")) == [nightly.id]
    assert harness.ids(where(Field.SCOPE, "repo")) == []
    assert harness.ids(where(Field.SCOPE, "repo:read", negated=True)) == [bare.id]
    assert harness.ids(where(Field.SCOPE, condition=Condition.EXISTS, negated=True)) == [plain.id]
    assert harness.ids(where(Field.EFFECTIVE_STATUS, "SUSPENDED")) == [bare.id]
    assert set(harness.ids(where(Field.EFFECTIVE_STATUS, "ACTIVE"))) == {nightly.id, plain.id}
    assert len(harness.ids(where(Field.STATUS, "ACTIVE"))) == 3
