from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.search_reference import matches, value_of
from tests.support.strategies import NOW, filters, record_lists, records, searches, text
from watchword.authority.callers import ActorSnapshot, Caller, Grant
from watchword.basics.errors import Fault, Reason
from watchword.basics.paging import LARGEST, MAX_COUNT, check_page
from watchword.tokens.filters import (
    MAX_FILTERS,
    MAX_VALUES,
    Condition,
    Field,
    Filter,
    Search,
    SortField,
    check_filter_sizes,
    parse_filter,
    parse_sort,
)
from watchword.tokens.list_service import constrained
from watchword.tokens.rules import TokenRecord, TokenStatus, TokenType

OPTIONAL = [
    Field.DESCRIPTION,
    Field.EXPIRES_AT,
    Field.LAST_USED_AT,
    Field.REVOKED_AT,
    Field.PARENT,
    Field.CREATED_WITH,
    Field.LAST_NETWORK,
]
ANN = "urn:li:corpuser:ann"
RECORD = TokenRecord("A" * 43 + "=", TokenType.PERSONAL, "n", None, ANN, ANN, 1, 2)


@st.composite
def filter_and_record(draw: st.DrawFn) -> tuple[Filter, TokenRecord]:
    record = draw(records())
    return draw(filters([record])), record


def asked(
    field: str, condition: str | None, value: str | None, values: list[str] | None, negated: bool
) -> dict[str, Any]:
    return {"field": field, "condition": condition, "value": value, "values": values, "negated": negated}


def rejection(field: str, condition: str | None, value: str | None, values: list[str] | None, negated: bool) -> Fault:
    with pytest.raises(Fault) as caught:
        parse_filter("filters[0]", asked(field, condition, value, values, negated), NOW)
    assert caught.value.reason is Reason.INVALID_FIELD
    return caught.value


@given(filter_and_record())
def test_present_value_matches_the_filter_or_its_negation(pair: tuple[Filter, TokenRecord]) -> None:
    found, record = pair
    negation = found._replace(negated=not found.negated)
    if value_of(record, found.field, NOW) is not None or found.condition is Condition.EXISTS:
        assert matches(found, record, NOW) != matches(negation, record, NOW)


@given(filters().filter(lambda f: f.field in OPTIONAL), records())
def test_missing_value_matches_only_negated_exists(f: Filter, record: TokenRecord) -> None:
    none: dict[str, Any] = {field.name.lower(): None for field in OPTIONAL}
    bare = record._replace(**none)
    assert matches(f, bare, NOW) == (f.condition is Condition.EXISTS and f.negated)


@given(filter_and_record())
def test_filter_values_are_ored(pair: tuple[Filter, TokenRecord]) -> None:
    found, record = pair
    if found.condition is Condition.EXISTS:
        return
    positive = found._replace(negated=False)
    each = [matches(positive._replace(values=(value,)), record, NOW) for value in found.values]
    assert matches(positive, record, NOW) == any(each)


@settings(max_examples=30)
@given(record_lists, st.data())
def test_filters_are_anded(among: list[TokenRecord], data: st.DataObject) -> None:
    search = data.draw(searches(among))
    for record in among:
        shown = record.revoked_at is None or any(f.names_status for f in search.filters)
        own = search.own is None or value_of(record, search.own[0], NOW) == search.own[1]
        assert matches(search, record, NOW) == (shown and own and all(matches(f, record, NOW) for f in search.filters))


@given(records(), st.lists(filters(), max_size=3))
def test_revoked_token_is_found_only_by_a_status_filter(record: TokenRecord, some: list[Filter]) -> None:
    revoked = record._replace(revoked_at=NOW)
    unasked = tuple(f for f in some if f.field not in (Field.STATUS, Field.EFFECTIVE_STATUS))
    assert not matches(Search(filters=unasked), revoked, NOW)
    asked = Filter(Field.STATUS, Condition.EQUAL, ("REVOKED",))
    assert matches(Search(filters=(asked,)), revoked, NOW)


@given(filter_and_record(), text)
def test_text_conditions_match_python_semantics(pair: tuple[Filter, TokenRecord], value: str) -> None:
    _, record = pair

    def holds(condition: Condition) -> bool:
        return matches(Filter(Field.NAME, condition, (value,)), record, NOW)

    assert holds(Condition.EQUAL) == holds(Condition.IN) == (record.name == value)
    assert holds(Condition.IEQUAL) == (record.name.lower() == value.lower())
    assert holds(Condition.CONTAIN) == (value in record.name)
    assert holds(Condition.START_WITH) == record.name.startswith(value)
    assert holds(Condition.END_WITH) == record.name.endswith(value)


@given(records(), st.integers(NOW - 5, NOW + 5))
def test_numbers_are_compared_as_numbers(record: TokenRecord, value: int) -> None:
    def holds(condition: Condition) -> bool:
        return matches(Filter(Field.CREATED_AT, condition, (value,)), record, NOW)

    assert holds(Condition.GREATER_THAN) == (record.created_at > value)
    assert holds(Condition.GREATER_THAN_OR_EQUAL_TO) == (record.created_at >= value)
    assert holds(Condition.LESS_THAN) == (record.created_at < value)
    assert holds(Condition.LESS_THAN_OR_EQUAL_TO) == (record.created_at <= value)


@given(filters())
def test_filter_survives_a_parse_round_trip(f: Filter) -> None:
    words = [str(value) for value in f.values]
    parsed = parse_filter("filters[0]", asked(f.field.word, f.condition.value, None, words, f.negated), NOW)
    assert parsed == f


@given(filters().filter(lambda f: f.condition is not Condition.EXISTS))
def test_value_and_values_are_merged(f: Filter) -> None:
    words = [str(value) for value in f.values]
    together = parse_filter("filters[0]", asked(f.field.word, f.condition.value, words[0], words, f.negated), NOW)
    assert together == f


def test_default_condition_is_equal() -> None:
    assert parse_filter("f", asked("name", None, "x", None, False), NOW).condition is Condition.EQUAL


@given(st.text().filter(lambda word: word not in {field.word for field in Field}))
def test_unknown_filter_field_is_rejected(word: str) -> None:
    fault = rejection(word, None, "x", None, False)
    assert fault.details == {"field": "filters[0].field"}
    assert all(field.word in fault.message for field in Field)


@pytest.mark.parametrize("field", Field)
@pytest.mark.parametrize("condition", Condition)
def test_unsupported_condition_is_rejected_with_the_supported_ones(field: Field, condition: Condition) -> None:
    value = None if condition is Condition.EXISTS else field.kind.words[0] if field.kind.words else "1"
    if condition in field.kind.conditions:
        assert parse_filter("f", asked(field.word, condition.value, value, None, False), NOW).condition is condition
        return
    fault = rejection(field.word, condition.value, value, None, False)
    assert fault.details == {"field": "filters[0].condition"}
    assert f"on {field.word}" in fault.message
    allowed = fault.message.split("one of: ")[1].removesuffix(".").split(", ")
    assert allowed == [known.value for known in field.kind.conditions]


@pytest.mark.parametrize("field", [field for field in Field if field.kind.numeric])
@pytest.mark.parametrize("word", ["", "x", "1.0", "1e3", "+1", " 1", "1 ", "--1", "0x1", "٣", "9" * 20, str(2**63)])
def test_invalid_number_is_rejected_with_an_example(field: Field, word: str) -> None:
    fault = rejection(field.word, "EQUAL", word, None, False)
    assert fault.details == {"field": "filters[0].values"}
    assert ("1767225600000" if field.kind.timed else "such as 10.") in fault.message


@pytest.mark.parametrize("field", [field for field in Field if field.kind.timed])
@given(st.integers(0, 999_999_999), st.integers(0, 86_399))
def test_time_filter_accepts_a_duration_ago(field: Field, days: int, seconds: int) -> None:
    found = parse_filter("f", asked(field.word, "LESS_THAN", f"P{days}DT{seconds}S", None, False), NOW)
    assert found.values == (NOW - (days * 86_400 + seconds) * 1_000,)


@pytest.mark.parametrize("word", ["P", "PT", "P1Y", "P1M", "P-1D", "P1.5D", "-P1D", "P1D ", "p1d", "P٣D"])
def test_invalid_duration_is_rejected_with_an_example(word: str) -> None:
    fault = rejection("lastActivityAt", "LESS_THAN", word, None, False)
    assert fault.details == {"field": "filters[0].values"}
    assert "such as P" in fault.message


def test_only_time_fields_accept_durations() -> None:
    assert "whole number, such as 10" in rejection("useCount", "LESS_THAN", "P90D", None, False).message
    assert parse_filter("f", asked("name", None, "P90D", None, False), NOW).values == ("P90D",)


@given(records(), st.integers(NOW - 5, NOW + 5))
def test_last_activity_is_last_use_or_creation(record: TokenRecord, value: int) -> None:
    idle = Filter(Field.LAST_ACTIVITY_AT, Condition.LESS_THAN, (value,))
    assert matches(idle, record._replace(last_used_at=None), NOW) == (record.created_at < value)
    assert matches(idle, record._replace(last_used_at=value - 1), NOW)
    assert not matches(idle, record._replace(last_used_at=value), NOW)


@given(st.integers(-LARGEST, LARGEST))
def test_every_64_bit_number_is_parsed(number: int) -> None:
    assert parse_filter("f", asked("createdAt", None, str(number), None, False), NOW).values == (number,)


@pytest.mark.parametrize("field", [field for field in Field if field.kind.words])
def test_unknown_enum_value_is_rejected_with_the_known_ones(field: Field) -> None:
    fault = rejection(field.word, "EQUAL", "NONSENSE", None, False)
    assert fault.details == {"field": "filters[0].values"}
    assert fault.message.endswith(f"must be one of: {', '.join(field.kind.words)}.")


@pytest.mark.parametrize("text", ["\x00", "a\x1fb", "\x7f", "\ud800", "x" * 1_001])
def test_unstorable_filter_value_is_rejected(text: str) -> None:
    assert rejection("name", "CONTAIN", None, ["fine", text], False).details == {"field": "filters[0].values"}


@pytest.mark.parametrize("field", [field for field in Field if field is not Field.TEXT])
def test_value_is_required_except_for_exists(field: Field) -> None:
    assert "needs value or values" in rejection(field.word, None, None, None, False).message
    assert "needs value or values" in rejection(field.word, "IN", None, [], True).message
    assert parse_filter("f", asked(field.word, "EXISTS", None, [], False), NOW).values == ()
    assert "takes no value" in rejection(field.word, "EXISTS", "x", None, False).message


def test_filter_and_value_counts_are_limited() -> None:
    most = [str(n) for n in range(MAX_VALUES)]
    assert len(parse_filter("f", asked("name", "IN", None, most, False), NOW).values) == MAX_VALUES
    with pytest.raises(Fault, match=f"at most {MAX_VALUES:,} values together"):
        check_filter_sizes([MAX_VALUES, 1])
    check_filter_sizes([1] * MAX_FILTERS)
    with pytest.raises(Fault, match=f"at most {MAX_FILTERS}"):
        check_filter_sizes([1] * (MAX_FILTERS + 1))


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))
@example(-1, 0)
@example(0, -1)
@example(0, 1_001)
@example(LARGEST, 1_000)
@example(LARGEST + 1, 0)
def test_page_start_and_count_are_limited(start: int, count: int) -> None:
    if 0 <= start <= LARGEST and 0 <= count <= MAX_COUNT:
        check_page(start, count)
    else:
        with pytest.raises(Fault) as caught:
            check_page(start, count)
        named = caught.value.details["field"]
        assert named == ("count" if 0 <= start <= LARGEST else "start")


@pytest.mark.parametrize("field", SortField)
@pytest.mark.parametrize("descending", [True, False])
def test_every_sort_field_is_parsed(field: SortField, descending: bool) -> None:
    sort = parse_sort(field.value.word, descending)
    assert (sort.field, sort.descending) == (field, descending)


def test_unknown_sort_field_is_rejected() -> None:
    with pytest.raises(Fault) as caught:
        parse_sort("description", True)
    assert caught.value.details == {"field": "sort.field"}
    assert all(field.value.word in caught.value.message for field in SortField)


def test_every_token_property_is_filterable() -> None:
    words = {field.word for field in Field}
    assert words >= {"name", "description", "actorUrn", "ownerUrn", "createdAt", "expiresAt"}
    assert words >= {"id", "urn", "tokenType", "status", "lastUsedAt"}


OF_ANN = Grant(Caller(ANN, ActorSnapshot(False, (), 1), None, "127.0.0.1", ""), frozenset())


@settings(max_examples=30)
@given(record_lists, st.data())
def test_filters_cannot_widen_the_owner_constraint(among: list[TokenRecord], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([Field.ACTOR_URN, Field.OWNER_URN]))
    others = data.draw(st.lists(filters(among), max_size=2))
    asked = constrained(Search(filters=(*others, Filter(field, Condition.EQUAL, (ANN,)))), OF_ANN)
    assert asked.own is not None
    held, owner = asked.own
    assert owner == ANN
    assert all(value_of(record, held, NOW) == ANN for record in among if matches(asked, record, NOW))


@given(filters())
def test_only_a_filter_on_the_caller_selects_own_tokens(f: Filter) -> None:
    pinned = (
        f.field in (Field.ACTOR_URN, Field.OWNER_URN)
        and f.condition in (Condition.EQUAL, Condition.IN)
        and not f.negated
        and f.values == (ANN,)
    )
    assert (constrained(Search(filters=(f,)), OF_ANN).own is not None) == pinned


def test_status_filter_uses_the_time_of_the_search() -> None:
    record = RECORD._replace(expires_at=NOW)
    active = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))
    assert matches(active, record, NOW - 1)
    assert not matches(active, record, NOW)
