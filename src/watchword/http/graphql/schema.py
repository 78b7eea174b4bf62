"""The schema: SDL from its file, with the resolvers put in their places."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    build_schema,
)

from watchword.domain.ports import Clock
from watchword.http.graphql import account_resolvers, event_resolvers, offboarding_resolvers, rights_resolvers
from watchword.http.graphql.operation_resolvers import OperationResolvers
from watchword.http.graphql.policy_resolvers import PolicyResolvers
from watchword.http.graphql.token_resolvers import TokenResolvers

LARGEST = 2**63 - 1
LONGEST_WORD = 200


def sdl() -> str:
    return (files("watchword.http.graphql") / "schema.graphql").read_text(encoding="utf-8")


_built: list[GraphQLSchema] = []


def prebuild() -> None:
    """For the process that workers are forked from: the first `make_schema` of each then finds it built."""
    _built[:] = [build_schema(sdl())]


def make_schema(clock: Clock, new_id: Callable[[], str]) -> GraphQLSchema:
    schema = _built.pop() if _built else build_schema(sdl())
    tokens, policies, operations = TokenResolvers(clock), PolicyResolvers(new_id), OperationResolvers(clock)
    queries = tokens.queries | account_resolvers.QUERIES | policies.queries | event_resolvers.QUERIES
    _attach(schema.query_type, queries | operations.queries | rights_resolvers.QUERIES)
    mutations = tokens.mutations | account_resolvers.MUTATIONS | policies.mutations | operations.mutations
    _attach(schema.mutation_type, mutations | offboarding_resolvers.MUTATIONS)
    long = schema.get_type("Long")
    assert isinstance(long, GraphQLScalarType)
    long.coerce_output_value = long.coerce_input_value = _Long()
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLEnumType):
            kind.coerce_input_value = partial(_enum_value, kind)  # type: ignore[method-assign]
    _attach(schema.get_type("AccessTokenMetadata"), tokens.readers)
    return schema


def _attach(kind: GraphQLNamedType | None, resolvers: Mapping[str, Callable[..., Any]]) -> None:
    assert isinstance(kind, GraphQLObjectType)
    missing = set(kind.fields) ^ set(resolvers)
    assert not missing, f"schema and resolvers disagree on {missing}"
    for name, resolver in resolvers.items():
        kind.fields[name].resolve = resolver


def _enum_value(kind: GraphQLEnumType, value: Any, _hide_suggestions: bool = True) -> Any:
    """Of a variable. The library looks for similar words, which no client is shown: for 1 MB it took half a second."""
    if isinstance(value, str) and len(value) > LONGEST_WORD:
        raise GraphQLError(f"A value of {len(value):,} characters does not exist in '{kind.name}' enum.")
    return GraphQLEnumType.coerce_input_value(kind, value, hide_suggestions=True)


class _Long:
    bounds = (-LARGEST - 1, LARGEST)

    def __call__(self, value: Any) -> int:
        least, most = self.bounds
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise GraphQLError("Long must be a whole number of 64 bits.")
