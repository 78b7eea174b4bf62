"""The GraphQL schema: SDL from its file, with resolvers attached."""

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
from watchword.http.graphql import actor_resolvers
from watchword.http.graphql.operation_resolvers import OperationResolvers
from watchword.http.graphql.policy_resolvers import PolicyResolvers
from watchword.http.graphql.token_resolvers import TokenResolvers

MAX_LONG = 2**63 - 1
MAX_ENUM_VALUE = 200


def sdl() -> str:
    return (files("watchword.http.graphql") / "schema.graphql").read_text(encoding="utf-8")


_built: list[GraphQLSchema] = []


def prebuild() -> None:
    """Build the schema in the main process, so that forked workers need not."""
    _built[:] = [build_schema(sdl())]


def make_schema(clock: Clock, new_id: Callable[[], str]) -> GraphQLSchema:
    schema = _built.pop() if _built else build_schema(sdl())
    tokens, policies, operations = TokenResolvers(clock), PolicyResolvers(new_id), OperationResolvers(clock)
    queries = tokens.queries | policies.queries | actor_resolvers.QUERIES | operations.queries
    mutations = tokens.mutations | policies.mutations | actor_resolvers.MUTATIONS | operations.mutations
    _attach(schema.query_type, queries)
    _attach(schema.mutation_type, mutations)
    long = schema.get_type("Long")
    assert isinstance(long, GraphQLScalarType)
    long.coerce_output_value = long.coerce_input_value = _LongCoercer()
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
    """For variables. The library would look for similar words, which are never shown: half a second for 1 MB."""
    if isinstance(value, str) and len(value) > MAX_ENUM_VALUE:
        raise GraphQLError(f"A value of {len(value):,} characters does not exist in '{kind.name}' enum.")
    return GraphQLEnumType.coerce_input_value(kind, value, hide_suggestions=True)


class _LongCoercer:
    bounds = (-MAX_LONG - 1, MAX_LONG)

    def __call__(self, value: Any) -> int:
        least, most = self.bounds
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise GraphQLError("Long must be a whole number of 64 bits.")
