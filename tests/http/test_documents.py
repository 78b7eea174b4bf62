"""The document cache is limited in bytes, and no document is larger than its estimate."""

import tracemalloc

import pytest
from graphql import build_schema, parse

from watchword.app.graphql_schema import make_schema, sdl
from watchword.basics.times import system_clock
from watchword.http.graphql.documents import FIELD_WEIGHT, PLAN_WEIGHT, WEIGHT, Documents, check_limits
from watchword.http.graphql.fastpath import Cause, Fallback, FastPath, PlannedCall

DENSE = "{ me { corpUser { " + "urn " * 900 + "} } }"
SPARSE = '{ getActor(urn: "' + "x" * 4_000 + '") { urn } }'


def test_cache_stays_within_its_limit() -> None:
    bound = 100 * WEIGHT + 2 * PLAN_WEIGHT
    documents = Documents(build_schema(sdl()), max_bytes=bound)
    for number in range(50):
        documents.get(f"{{ a{number}: me {{ corpUser {{ urn }} }} }}")
        assert documents.cached_bytes <= bound


def test_cache_keeps_documents_in_use() -> None:
    used = "{ me { corpUser { urn } } }"
    documents = Documents(build_schema(sdl()), max_bytes=4 * (40 * WEIGHT + PLAN_WEIGHT + 3 * FIELD_WEIGHT))
    first = documents.get(used)
    for number in range(50):
        documents.get(f"{{ a{number}: me {{ corpUser {{ urn }} }} }}")
        assert documents.get(used) is first


def test_documents_seen_once_do_not_evict_documents_seen_again() -> None:
    used = "{ me { corpUser { urn } } }"
    documents = Documents(build_schema(sdl()), max_bytes=4 * (40 * WEIGHT + PLAN_WEIGHT + 3 * FIELD_WEIGHT))
    first = documents.get(used)
    assert documents.get(used) is first
    for number in range(50):
        documents.get(f"{{ a{number}: me {{ corpUser {{ urn }} }} }}")
    assert documents.get(used) is first


@pytest.mark.parametrize("text", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_parsed_document_weighs_at_most_its_estimate(text: str) -> None:
    parse(text)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    document = parse(text)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert document.definitions
    assert after - before <= len(text) * WEIGHT


ROOTS = range(20)
URNS = " ".join(f"b{number}: urn" for number in range(40))
PLANNED = {
    "nothing": "{ __typename }",
    "little": "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }",
    "a list": "query ($of: ListAccessTokensInput) { listAccessTokens(input: $of) { total tokens { urn id name } } }",
    "fields": "{ " + " ".join(f"a{root}: me {{ corpUser {{ {URNS} }} }}" for root in ROOTS) + " }",
    "a fragment again and again": "{ " + " ".join(f'a{root}: getAccessToken(id: "x") {{ ...F }}' for root in ROOTS)
    + " } fragment F on AccessTokenMetadata { " + " ".join(f"b{number}: status" for number in range(48)) + " }",
    "variables": "query (" + " ".join(f"$v{root}: ListAccessTokensInput" for root in ROOTS) + ") { "
    + " ".join(f"a{root}: listAccessTokens(input: $v{root}) {{ total }}" for root in ROOTS) + " }",
}  # fmt: skip


@pytest.mark.parametrize("text", PLANNED.values(), ids=PLANNED)
def test_plan_weighs_at_most_its_estimate(text: str) -> None:
    schema, document = make_schema(system_clock), parse(text)
    for _ in range(2):  # the first creates what all documents share
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        fastpath = FastPath(schema, document)
        assert isinstance(fastpath.prepare(None, {"id": "x"}), PlannedCall)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert after - before <= PLAN_WEIGHT + check_limits(document)[1] * FIELD_WEIGHT


def test_weight_of_a_document_includes_the_plans_of_all_operations() -> None:
    documents = Documents(build_schema(sdl()))
    text = " ".join(f"query q{number} {{ me {{ corpUser {{ urn }} }} }}" for number in range(10))
    assert documents.get(text).weight > 10 * (PLAN_WEIGHT + 3 * FIELD_WEIGHT)


@pytest.mark.parametrize("directive", ["include", "skip"])
@pytest.mark.parametrize("declared", ["$v: Boolean!", "$v: Boolean! = true", "$v: Boolean = true"])
@pytest.mark.parametrize("selection", ["me {} {{ corpUser {{ urn }} }}", "me {{ corpUser {{ exists urn {} }} }}"])
def test_documents_with_conditional_variables_are_left_to_graphql_core(
    directive: str, declared: str, selection: str
) -> None:
    text = f"query ({declared}) {{ {selection.format(f'@{directive}(if: $v)')} }}"
    fastpath = FastPath(make_schema(system_clock), parse(text))
    assert fastpath.prepare(None, {"v": True}) == Fallback(Cause.UNSUPPORTED_OPERATION)
