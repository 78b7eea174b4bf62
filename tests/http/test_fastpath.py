"""The fast path answers as graphql-core does: same data in the same order, same errors, same resolver calls."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from graphql import ExecutionResult, GraphQLObjectType, OperationType, get_named_type, is_leaf_type, parse, validate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import homes
from tests.support.asking import Asked, asked
from tests.support.homes import HOLDER, NO_ACTOR, VICTIM, Furnished, Home
from tests.support.server import ADMIN
from tests.support.worlds import World, make_world_schema
from watchword.app.graphql_schema import make_schema
from watchword.basics.errors import Fault
from watchword.basics.times import system_clock
from watchword.http.graphql.documents import Documents, PreparedDocument
from watchword.http.graphql.fastpath import FastPath, Memo, PlannedCall

WORLD_SCHEMA = make_world_schema()
SCHEMA = make_schema(system_clock)
DOCUMENTS = Documents(SCHEMA)
UNKNOWN = "A" * 43 + "="
# Mutations that have equal effects on two equal stores, except for random values.
MUTATIONS = {
    "createAccessToken", "deriveAccessToken", "rotateAccessToken", "revokeAccessToken", "revokeAccessTokens",
    "createServiceAccount", "deleteServiceAccount", "deletePolicy", "addGroupMembers", "cancelOperation",
}  # fmt: skip
# A thousand in all; the soak runs twenty thousand.
OF_WORLDS, OF_QUERIES, OF_MUTATIONS, OF_LISTS = 600, 260, 140, 60
LONGER = 20
_AT = re.compile(r" at 0x[0-9a-f]+")


def many(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


DRAWS = st.randoms(use_true_random=False)


def everything(_name: str) -> bool:
    return True


# A schema of this test, whose resolvers return and raise anything.


def random_world(draw: Random) -> tuple[Asked, World]:
    what = asked(draw, WORLD_SCHEMA, {}, everything, mutates=draw.random() < 0.4)
    clean, nearly, pauses = draw.random() < 0.4, draw.random() < 0.5, draw.random() < 0.3
    return what, World(draw.randint(0, 2**32), clean=clean, nearly=nearly, pauses=pauses)


def comparable(result: ExecutionResult) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the data with its key order, and the errors as a client sees them, without memory addresses."""
    errors = [(_AT.sub("", e.message), e.path, e.locations, type(e.original_error)) for e in result.errors or []]
    return _AT.sub("", repr(result.data)), errors


async def compare(what: Asked, world: World) -> bool:
    """Return whether the fast path supports the document."""
    document = parse(what.text)
    assert validate(WORLD_SCHEMA, document) == []
    prepared = PreparedDocument(WORLD_SCHEMA, document, what.mutates, 1, FastPath(WORLD_SCHEMA, document), 0)
    here, there = replace(world), replace(world, told=[])
    planned = comparable((await prepared.execute(what.name, what.variables, here))[0])
    reference = comparable((await homes.by_graphql_core(prepared).execute(what.name, what.variables, there))[0])
    assert planned[0] == reference[0]
    if world.pauses and not what.mutates:
        # The field that finishes first reports its errors first.
        assert sorted(planned[1], key=repr) == sorted(reference[1], key=repr)
        assert sorted(map(repr, here.told)) == sorted(map(repr, there.told))
    else:
        assert planned[1] == reference[1]
        assert here.told == there.told
    return isinstance(prepared.fastpath.prepare(what.name, what.variables), PlannedCall)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@many(OF_WORLDS)
@given(draw=DRAWS)
def test_fast_path_completes_any_result_as_graphql_core_does(runner: asyncio.Runner, draw: Random) -> None:
    runner.run(compare(*random_world(draw)))


def test_awaitable_values_fall_back_to_graphql_core(runner: asyncio.Runner) -> None:
    text = "mutation Opa { anything_b: anything row { ... on Row { word @include(if: true) } } }"
    world = World(seed=4032793971, clean=False, nearly=False, pauses=False)
    runner.run(compare(Asked(text=text, variables={}, name=None, mutates=True), world))


def test_result_of_a_root_resolver_is_awaited_once(runner: asyncio.Runner) -> None:
    text = "query Opa($va1: [Given!]) { things_c: things(count: 1, nested: [[20, 20, 20]], inputs: $va1) { name } }"
    world = World(seed=950504713, clean=False, nearly=False, pauses=True)
    runner.run(compare(Asked(text=text, variables={"va1": []}, name=None, mutates=False), world))


@pytest.mark.soak
def test_fast_path_answers_thousands_of_documents_as_graphql_core_does(runner: asyncio.Runner) -> None:
    for seed in range(OF_WORLDS * LONGER):
        runner.run(compare(*random_world(Random(seed))))


def test_many_random_documents_use_the_fast_path(runner: asyncio.Runner) -> None:
    planned = [runner.run(compare(*random_world(Random(seed)))) for seed in range(50)]
    assert sum(planned) > 10


# The service's own schema, on real stores.


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Furnished:
    return homes.furnish(tmp_path_factory.mktemp("furnished") / "data")


@pytest.fixture(scope="module")
def open_homes(
    furnished: Furnished, runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Home, Home, Home]]:
    """Yield one service that is only read, and two with equal stores."""
    folder = tmp_path_factory.mktemp("homes")
    stack = AsyncExitStack()

    async def enter() -> list[Home]:
        copies = [homes.copied(furnished, folder / str(number)) for number in range(3)]
        return [await stack.enter_async_context(homes.opened(one)) for one in copies]

    reading, one, other = runner.run(enter())
    yield reading, one, other
    runner.run(stack.aclose())


def pools(home: Furnished) -> dict[str, list[Any]]:
    ids: list[Any] = [*home.ids, *home.ids, f"urn:li:serviceAccessToken:{home.ids[2]}", UNKNOWN, "no id"]
    urns: list[Any] = [ADMIN, HOLDER, VICTIM, VICTIM, NO_ACTOR, "no urn"]
    texts: list[Any] = [HOLDER, VICTIM, "number", "number 2", "5", "ACTIVE", "PERSONAL", "P1D", home.ids[0]]
    fields: list[Any] = ["actorUrn", "ownerUrn", "name", "status", "createdAt", "expiresAt", "id", "nothing"]
    return {
        "id": ids, "tokenId": ids, "ids": ids, "token": [*home.tokens, "eyJ.eyJ.x"], "actorUrn": urns, "urn": urns,
        "actorUrns": urns, "userUrns": urns, "field": fields, "value": texts, "values": texts,
        "name": ["a name", "é", "", "x" * 201], "description": ["described", ""], "durationIso": ["PT1H", "P", "P1D"],
        "scopes": ["repo:read", "VIEW_AUDIT_LOG", "no scope"], "allowedNetworks": ["10.0.0.0/8", "no network"],
        "audience": ["https://elsewhere.example"], "overlap": ["PT10M", "P"], "grace": ["PT1M", "P"],
        "count": [0, 1, 2, 5, 20, 1_001], "start": [0, 0, 1, 3, -1], "all": [False], "query": ["", "e"],
        "task": ["node:1", "x"], "groupUrn": ["urn:li:corpGroup:one"],
    }  # fmt: skip


async def compare_served(what: Asked, who: int, one: Home, other: Home, known: list[str]) -> None:
    try:
        prepared = DOCUMENTS.get(what.text)
    except Fault:  # over a limit: rejected by either
        return
    ways = ((one, True), (other, False))
    planned, reference = [
        homes.without_made(
            await homes.answer(home, SCHEMA, prepared, what.name, what.variables, who, planned=planned), known
        )
        for home, planned in ways
    ]
    if planned != reference and not what.mutates:
        # The field that finishes first reports its errors first.
        planned, reference = _with_sorted_errors(planned), _with_sorted_errors(reference)
    assert planned == reference, what.text


def _with_sorted_errors(answer: str) -> str:
    content = json.loads(answer)
    content["errors"].sort(key=lambda error: error["path"])
    return json.dumps(content)


def served_query(draw: Random, home: Furnished) -> tuple[Asked, int]:
    return asked(draw, SCHEMA, pools(home), everything, mutates=False), draw.randint(0, 3)


def served_mutation(draw: Random, home: Furnished) -> tuple[Asked, int]:
    return asked(draw, SCHEMA, pools(home), MUTATIONS.__contains__, mutates=True), draw.randint(0, 3)


@many(OF_QUERIES)
@given(draw=DRAWS)
def test_fast_path_answers_queries_as_graphql_core_does(
    runner: asyncio.Runner, furnished: Furnished, open_homes: tuple[Home, ...], draw: Random
) -> None:
    what, who = served_query(draw, furnished)
    runner.run(compare_served(what, who, open_homes[0], open_homes[0], furnished.ids))


def row_fields() -> list[str]:
    kind = SCHEMA.get_type("AccessTokenMetadata")
    assert isinstance(kind, GraphQLObjectType)
    return [name for name, field in kind.fields.items() if is_leaf_type(get_named_type(field.type))]


@many(OF_LISTS)
@given(draw=DRAWS)
def test_repeated_lists_are_answered_as_by_graphql_core(
    runner: asyncio.Runner, furnished: Furnished, open_homes: tuple[Home, ...], draw: Random
) -> None:
    """The store returns the rows of most of these as JSON."""
    names, pool = draw.sample(row_fields(), draw.choice((1, 2, 3, 12))), pools(furnished)
    fields = f"total tokens {{ {' '.join(names)} }}"
    prepared = DOCUMENTS.get(f"query ($i: ListAccessTokensInput) {{ listAccessTokens(input: $i) {{ {fields} }} }}")
    filters = [
        {"field": draw.choice(pool["field"]), "value": draw.choice(pool["value"])} for _ in range(draw.choice((0, 1)))
    ]
    sent = {"i": {"start": draw.choice(pool["start"]), "count": draw.choice(pool["count"]), "filters": filters}}
    who, memo = draw.randint(0, 3), Memo()

    async def answer(**how: Any) -> Any:
        return json.loads(await homes.answer(open_homes[0], SCHEMA, prepared, None, sent, who, **how))

    expected = runner.run(answer(planned=False))
    for _ in range(2):
        assert runner.run(answer(planned=True, memo=memo)) == expected


@many(OF_MUTATIONS)
@given(draw=DRAWS)
def test_fast_path_answers_mutations_as_graphql_core_does(
    runner: asyncio.Runner, furnished: Furnished, open_homes: tuple[Home, ...], draw: Random
) -> None:
    what, who = served_mutation(draw, furnished)
    runner.run(compare_served(what, who, open_homes[1], open_homes[2], furnished.ids))


@pytest.mark.soak
def test_fast_path_answers_thousands_of_requests_as_graphql_core_does(
    runner: asyncio.Runner, furnished: Furnished, open_homes: tuple[Home, ...]
) -> None:
    reading, one, other = open_homes
    for seed in range(OF_QUERIES * LONGER):
        what, who = served_query(Random(seed), furnished)
        runner.run(compare_served(what, who, reading, reading, furnished.ids))
    for seed in range(OF_MUTATIONS * LONGER):
        what, who = served_mutation(Random(seed), furnished)
        runner.run(compare_served(what, who, one, other, furnished.ids))


def whole_selection(kind: Any) -> str:
    """Select every field of a type and of the types below, except those with arguments: graphql-core executes them."""
    named = get_named_type(kind)
    if not isinstance(named, GraphQLObjectType):
        assert is_leaf_type(named)
        return ""
    plain = {name: field for name, field in named.fields.items() if not field.args}
    return "{ __typename " + " ".join(f"{n} {whole_selection(f.type)}" for n, f in plain.items()) + " }"


def roots() -> Iterator[tuple[str, str]]:
    for word in OperationType.QUERY, OperationType.MUTATION:
        kind = SCHEMA.get_root_type(word)
        assert kind is not None
        yield from ((word.value, name) for name in kind.fields)


@pytest.mark.parametrize(("word", "root"), list(roots()))
def test_fast_path_supports_every_root_field_with_all_subfields(word: str, root: str) -> None:
    kind = SCHEMA.get_root_type(OperationType(word))
    assert kind is not None
    field = kind.fields[root]
    declared = ", ".join(f"$v_{name}: {argument.type}" for name, argument in field.args.items())
    given = ", ".join(f"{name}: $v_{name}" for name in field.args)
    text = f"{word} {f'({declared})' if declared else ''} {{ {root}{f'({given})' if given else ''} "
    fastpath = DOCUMENTS.get(text + whole_selection(field.type) + " }").fastpath
    sent = {f"v_{name}": smallest_value(argument.type) for name, argument in field.args.items()}
    assert isinstance(fastpath.prepare(None, sent), PlannedCall)


def smallest_value(kind: Any) -> Any:
    """Return the smallest valid value."""
    text = str(kind).rstrip("!")
    named: Any = get_named_type(kind)
    if text.startswith("["):
        return []
    if hasattr(named, "fields"):
        return {
            name: smallest_value(field.type) for name, field in named.fields.items() if str(field.type).endswith("!")
        }
    if hasattr(named, "values"):
        return next(iter(named.values))
    return {"String": "x", "Boolean": True}.get(text, 1)
