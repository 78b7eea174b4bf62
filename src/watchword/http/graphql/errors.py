"""GraphQL errors for clients: a message that names the field and the allowed values, and extensions.

graphql-core reports an unknown name only in the text of its messages, so this module parses that text to add the
allowed names. A message that does not match is passed on as it is.
"""

import re
from collections.abc import Iterable
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLObjectType,
    GraphQLSchema,
    Visitor,
    visit,
)
from graphql.language import BREAK, ast

from watchword.domain.errors import Fault, Reason
from watchword.http.errors import MAX_SEARCHED, graphql_error, internal_fault, without_tokens

_ENUM = re.compile(r"(?:in '(\w+)' enum|Enum '(\w+)' cannot represent)")
_INPUT = re.compile(r"Expected value of type '(\w+)' not to include unknown field")
_SELECTED = re.compile(r"Cannot query field '\w+' on type '(\w+)'")
_ARGUMENT = re.compile(r"Unknown argument '\w+' on field '(\w+)\.(\w+)'")
_FOUND = re.compile(r",? [Ff]ound: .*", re.DOTALL)
# The start and end of the library's messages state the problem; the middle may repeat the input.
_START, _END = 250, 150


def document_error(error: GraphQLError, schema: GraphQLSchema, document: ast.DocumentNode | None) -> dict[str, Any]:
    """For a document or variable that does not match the schema."""
    message = _explain(error.message, schema)
    name = _field_of(error, document) if document is not None else None
    if name is not None:
        message = f"{name}: {message}"
    return _with_locations(graphql_error(Fault(Reason.INVALID_DOCUMENT, message)), error)


def field_error(error: GraphQLError, schema: GraphQLSchema) -> tuple[dict[str, Any], Fault]:
    """For a field that failed or was denied, or that has an invalid argument."""
    cause = error.original_error
    if cause is None or isinstance(cause, GraphQLError):
        fault = Fault(Reason.INVALID_DOCUMENT, _explain(error.message, schema))
    else:
        fault = cause if isinstance(cause, Fault) else internal_fault(cause)
    content = graphql_error(fault)
    if error.path:
        content["path"] = error.path
    return _with_locations(content, error), fault


def _with_locations(content: dict[str, Any], error: GraphQLError) -> dict[str, Any]:
    if error.locations:
        content["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    return content


def _explain(message: str, schema: GraphQLSchema) -> str:
    """The library's message without the value in question, and with the allowed names."""
    if len(message) > 2 * MAX_SEARCHED:
        message = message[:MAX_SEARCHED] + message[-MAX_SEARCHED:]
    message = without_tokens(message)
    if len(message) > _START + _END:
        message = f"{message[:_START]}…{message[-_END:]}"
    allowed = _allowed(message, schema)
    message = _FOUND.sub(".", message)
    return message if allowed is None else f"{message} Allowed: {', '.join(allowed)}."


def _allowed(message: str, schema: GraphQLSchema) -> Iterable[str] | None:
    if match := _ENUM.search(message):
        kind = schema.get_type(match[1] or match[2])
        return kind.values if isinstance(kind, GraphQLEnumType) else None
    if match := _INPUT.search(message) or _SELECTED.search(message):
        kind = schema.get_type(match[1])
        return kind.fields if isinstance(kind, GraphQLInputObjectType | GraphQLObjectType) else None
    if match := _ARGUMENT.search(message):
        kind = schema.get_type(match[1])
        field = kind.fields.get(match[2]) if isinstance(kind, GraphQLObjectType) else None
        return field.args or ["none"] if field is not None else None
    return None


class _ValueFinder(Visitor):
    def __init__(self, wanted: ast.Node) -> None:
        super().__init__()
        self.wanted = wanted
        self.found: str | None = None

    def enter(self, node: ast.Node, *_: Any) -> Any:
        if isinstance(node, ast.ArgumentNode | ast.ObjectFieldNode) and node.value is self.wanted:
            self.found = node.name.value
            return BREAK
        return None


def _field_of(error: GraphQLError, document: ast.DocumentNode) -> str | None:
    """The name of the argument or field that has an invalid value."""
    if not error.nodes or not isinstance(error.nodes[0], ast.ValueNode):
        return None
    finder = _ValueFinder(error.nodes[0])
    visit(document, finder)
    return finder.found
