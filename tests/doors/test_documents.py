"""Documents are kept under a bound of bytes, and a document weighs no more than it is counted for."""

import tracemalloc

import pytest
from graphql import build_schema, parse

from watchword.doors.http.graphql.documents import WEIGHT, Documents
from watchword.doors.http.graphql.schema import sdl

DENSE = "{ me { corpUser { " + "urn " * 900 + "} } }"
SPARSE = '{ getActor(urn: "' + "x" * 4_000 + '") { urn } }'


def test_however_many_documents_come_no_more_than_the_bound_is_kept() -> None:
    bound = 100 * WEIGHT
    documents = Documents(build_schema(sdl()), most_bytes=bound)
    for number in range(50):
        documents.get(f"{{ a{number}: me {{ corpUser {{ urn }} }} }}")
        assert documents.kept_bytes <= bound


def test_a_document_in_use_outlives_those_that_are_not() -> None:
    used = "{ me { corpUser { urn } } }"
    documents = Documents(build_schema(sdl()), most_bytes=200 * WEIGHT)
    first = documents.get(used)
    for number in range(50):
        documents.get(f"{{ a{number}: me {{ corpUser {{ urn }} }} }}")
        assert documents.get(used) is first


@pytest.mark.parametrize("text", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_a_parsed_document_weighs_no_more_than_it_is_counted_for(text: str) -> None:
    parse(text)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    document = parse(text)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert document.definitions
    assert after - before <= len(text) * WEIGHT
