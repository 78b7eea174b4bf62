"""The GraphQL schema: SDL put together from its parts, with resolvers attached."""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from inspect import getmembers, iscoroutinefunction, signature
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

from watchword.access import actor_graphql, directory_graphql, group_graphql, policy_graphql
from watchword.accounts import graphql as accounts
from watchword.audit import graphql as audit
from watchword.basics.times import Clock
from watchword.datahub import graphql as datahub
from watchword.declared import graphql as declared
from watchword.http.graphql.shapes import camel_case
from watchword.index import graphql as index
from watchword.notices import mail_graphql, webhook_graphql
from watchword.offboarding import graphql as offboarding
from watchword.retention import graphql as retention
from watchword.retention import run_graphql
from watchword.signin import session_graphql
from watchword.tokens import graphql as tokens
from watchword.tokens import overview_graphql

RESOLVERS = (
    tokens,
    overview_graphql,
    accounts,
    actor_graphql,
    offboarding,
    session_graphql,
    directory_graphql,
    policy_graphql,
    group_graphql,
    declared,
    audit,
    webhook_graphql,
    mail_graphql,
    index,
    retention,
    run_graphql,
    datahub,
)
"""In the order of the published schema."""
MAX_LONG = 2**63 - 1
MAX_ENUM_VALUE = 200
_NUMERAL = re.compile(r"-?[0-9]{1,19}")


def sdl() -> str:
    """Each module of resolvers brings its part: `graphql.py` and `schema.graphql` beside it, `x_graphql.py` and
    `x.graphql`.
    """
    parts = [files("watchword.http.graphql") / "base.graphql"]
    for module in RESOLVERS:
        package, _, name = module.__name__.rpartition(".")
        parts.append(files(package) / f"{name.removesuffix('graphql').rstrip('_') or 'schema'}.graphql")
    return "\n".join([part.read_text(encoding="utf-8") for part in parts])


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
    _attach(tokens.token_readers(clock), schema.get_type("AccessTokenMetadata"))
    return schema


def _root_resolvers() -> dict[str, Callable[..., Any]]:
    """The public coroutine functions of these modules that take a parent, which root fields do not have: `_`. Each has
    the name of its field, in snake case.
    """
    members = [getmembers(module, _is_resolver) for module in RESOLVERS]
    return {camel_case(name): function for name, function in chain(*members) if not name.startswith("_")}


def _is_resolver(member: Any) -> bool:
    return iscoroutinefunction(member) and next(iter(signature(member).parameters), None) == "_"


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
