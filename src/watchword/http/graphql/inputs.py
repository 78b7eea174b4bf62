"""Inputs of the fast path: functions that coerce the variables and arguments of one operation as graphql-core does.

They raise on invalid input. No resolver ran yet, so graphql-core can start over and report the error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from graphql import (
    GraphQLArgument,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLSchema,
    Undefined,
)
from graphql.execution.get_variable_signature import get_variable_signature
from graphql.execution.values import VariableValues, VariableValueSource
from graphql.language import ast
from graphql.utilities.coerce_input_value import coerce_default_value, coerce_input_literal

Variables = dict[str, Any]
Coerce = Callable[[Any], Any]
MakeValue = Callable[[VariableValues], Any]
"""Makes a value from the variables; Undefined for a variable without a value."""


class Unplanned(Exception):
    """The fast path does not support this; graphql-core does."""


class _Member(NamedTuple):
    """A variable, a field of an input object, or an item of a list."""

    name: str
    coerce: Coerce
    """For a value that is not null."""
    required: bool
    """Not nullable."""
    default: Any


def variable_coercer(
    schema: GraphQLSchema, nodes: Iterable[ast.VariableDefinitionNode]
) -> Callable[[Variables], VariableValues]:
    """A function that coerces the variables of a request. It ignores undeclared ones."""
    members, signatures = [], {}
    for node in nodes:
        signature = get_variable_signature(schema, node)
        assert not isinstance(signature, GraphQLError)  # it was validated
        members.append(_member(signature.name, signature.type, coerce_default_value(signature), ()))
        signatures[signature.name] = signature

    def coerce(variables: Variables) -> VariableValues:
        sources = {name: VariableValueSource(kind, variables.get(name, Undefined)) for name, kind in signatures.items()}
        return VariableValues(sources, _coerced(members, variables))

    return coerce


def _member(name: str, kind: GraphQLInputType, default: Any, within: tuple[str, ...]) -> _Member:
    if isinstance(kind, GraphQLNonNull):
        return _Member(name, _coercer(kind.of_type, within), True, default)
    return _Member(name, _coercer(kind, within), False, default)


def _coercer(kind: Any, within: tuple[str, ...]) -> Coerce:
    """Coerces a JSON value that is not null."""
    if isinstance(kind, GraphQLList):
        item = _member("", kind.of_type, Undefined, within)
        return lambda value: [_one(item, one) for one in (value if value.__class__ is list else (value,))]
    if isinstance(kind, GraphQLInputObjectType):
        return _object_coercer(kind, within)
    leaf: Coerce = kind.coerce_input_value
    return leaf


@lru_cache(256)
def _object_coercer(kind: GraphQLInputObjectType, within: tuple[str, ...]) -> Coerce:
    if kind.is_one_of or kind.name in within or any(field.out_name for field in kind.fields.values()):
        raise Unplanned
    names = kind.fields.keys()
    inside = (*within, kind.name)
    members = [_member(name, one.type, coerce_default_value(one), inside) for name, one in kind.fields.items()]

    def coerce(value: Any) -> Any:
        if value.__class__ is not dict or not value.keys() <= names:
            raise Unplanned
        return _coerced(members, value)

    return coerce


def _one(member: _Member, value: Any) -> Any:
    if value is not None:
        return member.coerce(value)
    if member.required:
        raise Unplanned
    return None


def _coerced(members: list[_Member], source: Variables) -> dict[str, Any]:
    values = {}
    for member in members:
        value = source.get(member.name, Undefined)
        if value is not Undefined:
            values[member.name] = _one(member, value)
        elif member.default is not Undefined:
            values[member.name] = member.default
        elif member.required:
            raise Unplanned
    return values


def argument_maker(definitions: Mapping[str, GraphQLArgument], nodes: Iterable[ast.ArgumentNode]) -> MakeValue:
    """A function that makes the arguments of a field from the variables."""
    given = {node.name.value: node.value for node in nodes}
    parts: list[tuple[str, MakeValue, Any, bool]] = []
    for name, definition in definitions.items():
        node, default = given.get(name), coerce_default_value(definition)
        make = _always(Undefined) if node is None else _literal(node, definition.type)
        required = isinstance(definition.type, GraphQLNonNull) and default is Undefined
        parts.append((definition.out_name or name, make, default, required))

    def make_arguments(known: VariableValues) -> dict[str, Any]:
        values = {}
        for name, make, default, required in parts:
            value = make(known)
            if value is Undefined:
                value = default
            if value is not Undefined:
                values[name] = value
            elif required:
                raise Unplanned
        return values

    if any(_has_variable(node) for node in given.values()):
        return make_arguments
    return _always(make_arguments(VariableValues({}, {})))


def constant_arguments(definitions: Mapping[str, GraphQLArgument], nodes: Sequence[ast.ArgumentNode]) -> dict[str, Any]:
    """The arguments of a field below the root. A plan is made once, so variables are not supported there."""
    if any(_has_variable(node.value) for node in nodes):
        raise Unplanned
    arguments: dict[str, Any] = argument_maker(definitions, nodes)(VariableValues({}, {}))
    return arguments


def _literal(node: ast.ValueNode, kind: GraphQLInputType) -> MakeValue:
    """Looks a variable up. A literal that contains variables is coerced by graphql-core each time."""
    if isinstance(node, ast.VariableNode):
        name, required = node.name.value, isinstance(kind, GraphQLNonNull)

        def value_of(known: VariableValues) -> Any:
            value = known.coerced.get(name, Undefined)
            if value is None and required:
                raise Unplanned
            return value

        return value_of
    if _has_variable(node):
        return lambda known: _coerced_literal(node, kind, known)
    return _always(_coerced_literal(node, kind))


def _coerced_literal(node: ast.ValueNode, kind: GraphQLInputType, known: VariableValues | None = None) -> Any:
    value = coerce_input_literal(node, kind, known)
    if value is Undefined:
        raise Unplanned
    return value


def _always(value: Any) -> MakeValue:
    return lambda _: value


def _has_variable(node: ast.ValueNode) -> bool:
    if isinstance(node, ast.ListValueNode):
        return any(_has_variable(one) for one in node.values)
    if isinstance(node, ast.ObjectValueNode):
        return any(_has_variable(field.value) for field in node.fields)
    return isinstance(node, ast.VariableNode)
