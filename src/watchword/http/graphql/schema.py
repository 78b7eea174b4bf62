"""The GraphQL schema: SDL from its file, with resolvers attached."""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from inspect import getmembers, iscoroutinefunction
from itertools import chain
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLField,
    GraphQLInt,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    build_schema,
)
from graphql.type.scalars import coerce_int

from watchword.domain.ports import Clock
from watchword.http.graphql import (
    actor_resolvers,
    directory_resolvers,
    operation_resolvers,
    policy_resolvers,
    retention_resolvers,
    token_resolvers,
    webhook_resolvers,
)
from watchword.http.graphql.context import camel_case

MAX_LONG = 2**63 - 1
MAX_ENUM_VALUE = 200
_NUMERAL = re.compile(r"-?[0-9]{1,19}")


def sdl() -> str:
    return (files("watchword.http.graphql") / "schema.graphql").read_text(encoding="utf-8")


@cache
def built_schema() -> GraphQLSchema:
    """Call this in the main process first, so that forked workers need not build it."""
    return build_schema(sdl())


def make_schema(clock: Clock) -> GraphQLSchema:
    schema = built_schema()
    _attach(_root_resolvers(), schema.query_type, schema.mutation_type)
    long = schema.get_type("Long")
    assert isinstance(long, GraphQLScalarType)
    long.coerce_output_value = _LongCoercer()
    long.coerce_input_value = _numeral_coercer(_LongCoercer())
    GraphQLInt.coerce_input_value = _numeral_coercer(coerce_int)
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLEnumType):
            kind.coerce_input_value = partial(_enum_value, kind)  # type: ignore[method-assign]
    _attach(token_resolvers.token_readers(clock), schema.get_type("AccessTokenMetadata"))
    return schema


def _root_resolvers() -> dict[str, Callable[..., Any]]:
    """The public coroutine functions of these modules. Each has the name of its field, in snake case."""
    modules = (
        *(actor_resolvers, directory_resolvers, operation_resolvers, policy_resolvers),
        *(retention_resolvers, token_resolvers, webhook_resolvers),
    )
    members = [getmembers(module, iscoroutinefunction) for module in modules]
    return {camel_case(name): function for name, function in chain(*members) if not name.startswith("_")}


def _attach(resolvers: Mapping[str, Callable[..., Any]], *kinds: GraphQLNamedType | None) -> None:
    fields: dict[str, GraphQLField] = {}
    for kind in kinds:
        assert isinstance(kind, GraphQLObjectType)
        fields |= kind.fields
    missing = set(fields) ^ set(resolvers)
    assert not missing, f"schema and resolvers disagree on {missing}"
    for name, resolver in resolvers.items():
        fields[name].resolve = resolver


def _enum_value(kind: GraphQLEnumType, value: Any, _hide_suggestions: bool = True) -> Any:
    """For variables. The library would look for similar words, which are never shown: half a second for 1 MB."""
    if isinstance(value, str) and len(value) > MAX_ENUM_VALUE:
        raise GraphQLError(f"A value of {len(value):,} characters does not exist in '{kind.name}' enum.")
    return GraphQLEnumType.coerce_input_value(kind, value, hide_suggestions=True)


def _numeral_coercer(coerce: Callable[[Any], int]) -> Callable[[Any], int]:
    """DataHub's server takes numbers in quotes in variables, and scripts send them."""

    def coerce_numeral(value: Any) -> int:
        return coerce(int(value) if isinstance(value, str) and _NUMERAL.fullmatch(value) else value)

    return coerce_numeral


class _LongCoercer:
    bounds = (-MAX_LONG - 1, MAX_LONG)

    def __call__(self, value: Any) -> int:
        least, most = self.bounds
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise GraphQLError("Long must be a whole number of 64 bits.")
