"""Plans: a validated document made into what it does, once. graphql-core stays the reference.

Of each operation a plan knows how its variables and arguments are coerced, which root resolvers are called, and how
what they return is shown. It knows the good case alone: an operation that it does not understand, a variable that does
not fit, a returned value that is not as the schema says, are left to graphql-core, before anything is executed or with
what the root resolvers have returned already.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import isawaitable, iscoroutinefunction
from typing import Any, NamedTuple

from graphql import (
    DirectiveNode,
    DocumentNode,
    ExecutionResult,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLIncludeDirective,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLSkipDirective,
    OperationDefinitionNode,
    OperationType,
    VariableNode,
    Visitor,
    execute,
    located_error,
    visit,
)
from graphql.execution.collect_fields import FieldDetailsList, FragmentDetails, collect_fields, collect_subfields
from graphql.execution.values import VariableValues

from watchword.domain.errors import Fault
from watchword.http.graphql.completers import Complete, Part, completer, is_typename
from watchword.http.graphql.inputs import Make, Sent, Unplanned, arguments, variables

MOST_SHAPES = 8
"""Of an operation, by what its variables include and skip. Others are executed by graphql-core."""

Resolve = Callable[..., Any]
Fragments = dict[str, FragmentDetails]
Metered = AbstractContextManager[None]
UNMETERED: Metered = nullcontext()


class Info(NamedTuple):
    """What a root resolver is told."""

    context: Any
    part: Part


class _Root(NamedTuple):
    key: str
    resolve: Resolve
    arguments: Make
    nodes: list[FieldNode]


class _Shape(NamedTuple):
    """An operation with all decided that `@include` and `@skip` leave to its variables."""

    roots: tuple[_Root, ...]
    complete: Complete
    part: Part
    serial: bool


class Call(NamedTuple):
    """An operation with the arguments of its root fields, about to be executed."""

    shape: _Shape
    arguments: list[dict[str, Any]]

    async def resolved(self, context: Any) -> list[Any]:
        """What each root resolver returned, or the exception it raised."""
        roots, info = self.shape.roots, Info(context, self.shape.part)
        under_way = (
            _outcome(root.resolve(None, info, **given)) for root, given in zip(roots, self.arguments, strict=True)
        )
        if self.shape.serial or len(roots) == 1:
            return [await one for one in under_way]
        return await asyncio.gather(*under_way)

    def completed(self, outcomes: list[Any]) -> ExecutionResult | None:
        """None where graphql-core has to say what is wrong with what was returned."""
        roots, returned = self.shape.roots, outcomes
        errors = None
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            failed = [(root, one) for root, one in zip(roots, outcomes, strict=True) if isinstance(one, Exception)]
            errors = [located_error(error, root.nodes, [root.key]) for root, error in failed]
            returned = [None if isinstance(outcome, Exception) else outcome for outcome in outcomes]
        try:
            return ExecutionResult(self.shape.complete(*returned), errors)
        except Exception:  # noqa: BLE001 - graphql-core finds it again
            return None

    def replay(self, outcomes: list[Any]) -> Resolve:
        """A middleware for graphql-core, with which no root field is resolved again."""
        known = {root.key: outcome for root, outcome in zip(self.shape.roots, outcomes, strict=True)}

        def resolve(resolver: Resolve, source: Any, info: Any, **given: Any) -> Any:
            if info.path.prev is None and info.path.key in known:
                return _again(known[info.path.key])
            return resolver(source, info, **given)

        return resolve


async def _outcome(resolved: Any) -> Any:
    try:
        return await resolved
    except Exception as error:  # noqa: BLE001 - told as the field's error
        return error


async def _again(outcome: Any) -> Any:
    """Awaited once and no more: what a resolver returned is not awaited itself."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class Plans:
    """Those of one document, made when they are first asked for."""

    def __init__(self, schema: GraphQLSchema, document: DocumentNode) -> None:
        self._schema = schema
        self._document = document
        self._operations: dict[str | None, _Operation] = {}
        conditions = _Conditions()
        visit(document, conditions)
        definitions = document.definitions
        fragments = {d.name.value: FragmentDetails(d) for d in definitions if isinstance(d, FragmentDefinitionNode)}
        operations = [d for d in definitions if isinstance(d, OperationDefinitionNode)]
        for node in operations:
            operation = _Operation(schema, node, fragments, conditions.names)
            if node.name is not None:
                self._operations[node.name.value] = operation
            if len(operations) == 1:
                self._operations[None] = operation
        self.most_shapes = max(operation.most_shapes for operation in self._operations.values())
        """How many there may be of one operation."""

    async def execute(
        self, name: str | None, sent: Sent, context: Any, *, planned: bool = True, metered: Metered = UNMETERED
    ) -> ExecutionResult:
        """The operation of this name with these variables. Unless it is planned, graphql-core does it all. A plan is
        made, and what has none is executed, within `metered`, which may raise a fault.
        """
        call = self.call(name, sent, metered) if planned else None
        middleware = None
        if call is not None:
            outcomes = await call.resolved(context)
            result = call.completed(outcomes)
            if result is not None:
                return result
            middleware = [call.replay(outcomes)]
        with metered if call is None else UNMETERED:
            executed = execute(
                self._schema,
                self._document,
                context_value=context,
                variable_values=sent,
                operation_name=name,
                max_coercion_errors=5,
                hide_suggestions=True,
                middleware=middleware,
            )
        return await executed if isawaitable(executed) else executed

    def call(self, name: str | None, sent: Sent, metered: Metered = UNMETERED) -> Call | None:
        """None where graphql-core is to execute it."""
        operation = self._operations.get(name)
        try:
            return None if operation is None else operation.call(sent, metered)
        except Fault:
            raise
        except Exception:  # noqa: BLE001 - graphql-core says what is wrong
            return None


class _Conditions(Visitor):
    """The names of the variables by which something is included or skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_directive(self, node: DirectiveNode, *_: Any) -> None:
        if node.name.value in (GraphQLIncludeDirective.name, GraphQLSkipDirective.name):
            values = [argument.value for argument in node.arguments or ()]
            self.names |= {value.name.value for value in values if isinstance(value, VariableNode)}


class _Operation:
    def __init__(
        self, schema: GraphQLSchema, node: OperationDefinitionNode, fragments: Fragments, conditions: set[str]
    ) -> None:
        self._schema = schema
        self._node = node
        self._fragments = fragments
        declared = [definition.variable.name.value for definition in node.variable_definitions or ()]
        self._conditions = [name for name in declared if name in conditions]
        self.most_shapes = min(MOST_SHAPES, 1 << len(self._conditions))
        self._variables: Callable[[Sent], VariableValues] | None = None
        self._shapes: dict[tuple[Any, ...], _Shape | None] = {}

    def call(self, sent: Sent, metered: Metered) -> Call | None:
        if self._variables is None:
            with metered:
                self._variables = variables(self._schema, self._node.variable_definitions or ())
        values = self._variables(sent)
        decided = tuple([values.coerced.get(name) for name in self._conditions])
        if decided not in self._shapes:
            if len(self._shapes) >= MOST_SHAPES or None in decided:
                return None
            with metered:
                self._shapes[decided] = self._new_shape(dict(zip(self._conditions, decided, strict=True)))
        shape = self._shapes[decided]
        return None if shape is None else Call(shape, [root.arguments(values) for root in shape.roots])

    def _new_shape(self, conditions: dict[str, Any]) -> _Shape | None:
        schema, node, fragments, decided = self._schema, self._node, self._fragments, VariableValues({}, conditions)
        kind = schema.get_root_type(node.operation)
        if kind is None or node.directives or node.operation is OperationType.SUBSCRIPTION:
            return None
        fields = collect_fields(schema, fragments, decided, kind, node).grouped_field_set

        def subfields(kind: GraphQLObjectType, details: FieldDetailsList) -> dict[str, FieldDetailsList]:
            return collect_subfields(schema, fragments, decided, node, kind, details).grouped_field_set

        try:
            roots = [_root(kind, key, details) for key, details in fields.items() if not is_typename(details)]
            complete, part = completer(kind, fields, subfields)
        except Unplanned:
            return None
        return _Shape(tuple(roots), complete, part, node.operation is OperationType.MUTATION)


def _root(kind: GraphQLObjectType, key: str, details: FieldDetailsList) -> _Root:
    first = details[0].node
    field = kind.fields.get(first.name.value)
    # What is asked of the schema is no field of the type. An error must be able to stay where it is: at its root.
    if field is None or isinstance(field.type, GraphQLNonNull) or not iscoroutinefunction(field.resolve):
        raise Unplanned
    return _Root(key, field.resolve, arguments(field.args, first.arguments or ()), [one.node for one in details])
