"""The fast path: executes most GraphQL operations several times faster than graphql-core, with the same results.

Requests enter at `FastPath.execute` alone; its first half, `prepare`, is public for tests. It compiles each operation
once into a plan: how variables and arguments are coerced, which root resolvers run, how their results are completed. A
plan handles only the good case. For anything else (a variable in `@include` or `@skip`, invalid input, a result that
does not fit the schema) `execute` returns a `Fallback`, and the endpoint lets graphql-core execute the operation.
Resolvers that already ran do not run again, except one that returned rows as JSON: graphql-core needs records.

This module and those for inputs and completers import internal modules of graphql-core (`collect_fields`, `values`,
`coerce_input_value`), so that both paths share the collection of fields and the coercion of literals.
tests/http/test_fastpath.py compares the two paths.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum, auto
from inspect import iscoroutinefunction
from itertools import chain
from typing import Any, NamedTuple

from graphql import ExecutionResult, GraphQLError, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, located_error
from graphql.execution.collect_fields import FieldDetailsList, FragmentDetails, collect_fields, collect_subfields
from graphql.execution.values import VariableValues
from graphql.language import ast
from orjson import Fragment

from watchword.basics.errors import Fault
from watchword.basics.processor_time import measured
from watchword.http.graphql.completers import Complete, RecordSelection, completer, is_typename
from watchword.http.graphql.inputs import MakeValue, Unplanned, Variables, argument_maker, variable_coercer

Resolve = Callable[..., Any]
Meter = AbstractContextManager[None]
UNMETERED: Meter = nullcontext()


class Cause(StrEnum):
    """Why graphql-core executes an operation. The values are labels of a metric."""

    INTROSPECTION = auto()
    UNKNOWN_OPERATION = auto()
    UNSUPPORTED_OPERATION = auto()
    INVALID_INPUT = auto()
    UNEXPECTED_RESULT = auto()


class Fallback(NamedTuple):
    """graphql-core must execute the operation."""

    cause: str
    middleware: list[Resolve] | None = None
    """Returns the results of the root resolvers that already ran."""


@dataclass(slots=True)
class Memo:
    """What was made of the variables of a request, for the next request with the same body. Nothing of its caller."""

    arguments: list[dict[str, Any]] | None = None
    parsed: Any = None
    """What the resolver of its only root field parsed its arguments to."""


class FastPathInfo(NamedTuple):
    context: Any
    record_fields: frozenset[str] | None
    """The fields of a record that the selection reads; None where it reads no record."""
    memo: Memo | None
    """Of the only root field; None where there are several."""
    row_names: tuple[str, ...] | None
    """See `RecordSelection`. A resolver may then return a list of records as a JSON `Fragment`."""


class _RootField(NamedTuple):
    key: str
    resolve: Resolve
    arguments: MakeValue
    nodes: list[ast.FieldNode]


class _Plan(NamedTuple):
    coerce: Callable[[Variables], VariableValues]
    roots: tuple[_RootField, ...]
    complete: Complete
    selection: RecordSelection
    serial: bool


class PlannedCall(NamedTuple):
    """A plan with the arguments of its root fields."""

    plan: _Plan
    arguments: list[dict[str, Any]]
    memo: Memo

    async def resolve(self, context: Any) -> list[Any]:
        """The result of each root resolver, or the exception it raised."""
        roots, selection = self.plan.roots, self.plan.selection
        if len(roots) == 1:
            info = FastPathInfo(context, selection.fields, self.memo, selection.row_names)
            return [await _result(roots[0].resolve(None, info, **self.arguments[0]))]
        info = FastPathInfo(context, selection.fields, None, None)
        pending = (_result(root.resolve(None, info, **args)) for root, args in zip(roots, self.arguments, strict=True))
        if self.plan.serial:
            return [await one for one in pending]
        return await asyncio.gather(*map(measured, pending))

    async def complete(self, results: list[Any]) -> ExecutionResult | Fallback:
        values, errors = results, None
        if any(isinstance(result, Exception) for result in results):
            pairs = zip(self.plan.roots, results, strict=True)
            errors = [located_error(e, root.nodes, [root.key]) for root, e in pairs if isinstance(e, Exception)]
            values = [None if isinstance(result, Exception) else result for result in results]
        try:
            return ExecutionResult(await _completed(self.plan.complete(*values)), errors)
        except Exception:  # noqa: BLE001 - graphql-core finds and reports the same problem
            # graphql-core cannot complete a Fragment: it calls the resolver of the list again.
            fields = chain.from_iterable(result.values() for result in results if isinstance(result, dict))
            again = any(isinstance(value, Fragment) for value in fields)
            return Fallback(Cause.UNEXPECTED_RESULT, None if again else [self._replay(results)])

    def _replay(self, results: list[Any]) -> Resolve:
        known = {root.key: result for root, result in zip(self.plan.roots, results, strict=True)}

        def middleware(resolver: Resolve, source: Any, info: Any, **args: Any) -> Any:
            if info.path.prev is None and info.path.key in known:
                return _replayed(known[info.path.key])
            return resolver(source, info, **args)

        return middleware


async def _completed(slices: Generator[None, None, dict[str, Any]]) -> dict[str, Any]:
    """Other requests are answered after each slice of the rows."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            data: dict[str, Any] = end.value
            return data
        await asyncio.sleep(0)


async def _result(pending: Any) -> Any:
    try:
        return await pending
    except Exception as error:  # noqa: BLE001 - becomes the error of the field
        return error


async def _replayed(result: Any) -> Any:
    """A coroutine, because graphql-core must await the result exactly once, as it would await the resolver."""
    if isinstance(result, Exception):
        raise result
    return result


class FastPath:
    """The plans of one validated document, compiled on first use."""

    def __init__(self, schema: GraphQLSchema, document: ast.DocumentNode) -> None:
        definitions = document.definitions
        fragments = {d.name.value: FragmentDetails(d) for d in definitions if isinstance(d, ast.FragmentDefinitionNode)}
        nodes = [d for d in definitions if isinstance(d, ast.OperationDefinitionNode)]
        operations = [_Operation(schema, node, fragments) for node in nodes]
        self._operations: dict[str | None, _Operation] = {
            node.name.value: operation for node, operation in zip(nodes, operations, strict=True) if node.name
        }
        if len(operations) == 1:
            self._operations[None] = operations[0]

    async def execute(
        self, name: str | None, variables: Variables, context: Any, meter: Meter, memo: Memo
    ) -> ExecutionResult | Fallback:
        """Compiles a plan within `meter`, which may raise a fault."""
        call = self.prepare(name, variables, meter, memo)
        return call if isinstance(call, Fallback) else await call.complete(await call.resolve(context))

    def prepare(
        self, name: str | None, variables: Variables, meter: Meter = UNMETERED, memo: Memo | None = None
    ) -> PlannedCall | Fallback:
        operation = self._operations.get(name)
        if operation is None:
            return Fallback(Cause.UNKNOWN_OPERATION)
        try:
            return operation.prepare(variables, meter, Memo() if memo is None else memo)
        except Fault:
            raise
        except Exception:  # noqa: BLE001 - graphql-core finds and reports the same problem
            return Fallback(Cause.INVALID_INPUT)


@dataclass(slots=True)
class _Operation:
    _schema: GraphQLSchema
    _node: ast.OperationDefinitionNode
    _fragments: dict[str, FragmentDetails]
    _plan: _Plan | Fallback | None = None

    def prepare(self, variables: Variables, meter: Meter, memo: Memo) -> PlannedCall | Fallback:
        if self._plan is None:
            with meter:
                self._plan = self._compile()
        plan = self._plan
        if isinstance(plan, Fallback):
            return plan
        if memo.arguments is None:
            values = plan.coerce(variables)
            memo.arguments = [root.arguments(values) for root in plan.roots]
        return PlannedCall(plan, memo.arguments, memo)

    def _compile(self) -> _Plan | Fallback:
        schema, node, fragments = self._schema, self._node, self._fragments
        root_type = schema.get_root_type(node.operation)
        if root_type is None or node.directives or node.operation is ast.OperationType.SUBSCRIPTION:
            return Fallback(Cause.UNSUPPORTED_OPERATION)
        values = VariableValues({}, {})

        def subfields(kind: GraphQLObjectType, details: FieldDetailsList) -> dict[str, FieldDetailsList]:
            return collect_subfields(schema, fragments, values, node, kind, details).grouped_field_set

        try:
            fields = collect_fields(schema, fragments, values, root_type, node).grouped_field_set
            selected = {key: details for key, details in fields.items() if not is_typename(details)}
            if any(details[0].node.name.value not in root_type.fields for details in selected.values()):
                return Fallback(Cause.INTROSPECTION)
            coerce = variable_coercer(schema, node.variable_definitions or ())
            roots = [_root_field(root_type, key, details) for key, details in selected.items()]
            complete, selection = completer(root_type, fields, subfields)
        except (Unplanned, GraphQLError):  # GraphQLError: a variable in `@include` or `@skip`
            return Fallback(Cause.UNSUPPORTED_OPERATION)
        serial = node.operation is ast.OperationType.MUTATION
        return _Plan(coerce, tuple(roots), complete, selection, serial)


def _root_field(kind: GraphQLObjectType, key: str, details: FieldDetailsList) -> _RootField:
    first = details[0].node
    field = kind.fields[first.name.value]
    # An error of a non-null root field would replace all data; graphql-core does that.
    if isinstance(field.type, GraphQLNonNull) or not iscoroutinefunction(field.resolve):
        raise Unplanned
    return _RootField(
        key, field.resolve, argument_maker(field.args, first.arguments or ()), [one.node for one in details]
    )
