"""The fast path: executes most GraphQL operations several times faster than graphql-core, with the same results.

Requests enter at `FastPath.execute` alone; its first half, `prepare`, is public for tests. It compiles each operation
once into a plan: how variables and arguments are coerced, which root resolvers run, how their results are completed. A
plan handles only the good case. For anything else (a variable in `@include` or `@skip`, invalid input, a result that
does not fit the schema) `execute` returns a `Fallback`, and the endpoint lets graphql-core execute the operation.
Resolvers that already ran do not run again, except one that returned rows as JSON: graphql-core needs records.

Inputs: functions that coerce the variables and arguments of one operation as graphql-core does. They raise on invalid
input. No resolver ran yet, so graphql-core can start over and report the error.

Completers: turn the results of root resolvers into response data, with a Python function generated per selection. They
raise on what does not fit (null for a non-null field, a value of another class, an awaitable), and graphql-core
completes the same results.

This module imports internal modules of graphql-core (`collect_fields`, `values`, `coerce_input_value`), so that both
paths share the collection of fields and the coercion of literals. tests/http/test_fastpath.py compares the two paths.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import lru_cache, partial
from inspect import isawaitable, iscoroutinefunction
from itertools import chain, count
from operator import attrgetter
from typing import Any, NamedTuple

from graphql import (
    ExecutionResult,
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLError,
    GraphQLID,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLString,
    Undefined,
    located_error,
)
from graphql.execution.collect_fields import (
    FieldDetailsList,
    FragmentDetails,
    GroupedFieldSet,
    collect_fields,
    collect_subfields,
)
from graphql.execution.get_variable_signature import get_variable_signature
from graphql.execution.values import VariableValues, VariableValueSource
from graphql.language import FieldNode, ast
from graphql.type.scalars import GRAPHQL_MAX_INT, GRAPHQL_MIN_INT
from graphql.utilities.coerce_input_value import coerce_default_value, coerce_input_literal
from orjson import Fragment

from watchword.domain.errors import Fault
from watchword.domain.processor_time import measured
from watchword.http.processor_budget import SLICE

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


Subfields = Callable[[GraphQLObjectType, FieldDetailsList], GroupedFieldSet]
Complete = Callable[..., Generator[None, None, dict[str, Any]]]

_CLASSES = {GraphQLString.name: "str", GraphQLID.name: "str", GraphQLBoolean.name: "bool"}


class RecordSelection(NamedTuple):
    """What a selection reads of records."""

    fields: frozenset[str] | None
    """Their fields; None if it reads no record."""
    row_names: tuple[str, ...] | None
    """The selected fields if its only records are the items of a list, without subfields, aliases and `__typename`."""


class Reader:
    """A resolver that reads its source object: an attribute path, or a function of some attributes.

    The source is an instance of one class, or a projection: an object whose `projection_of` is that class and that
    has at least the attributes that the selection reads.
    """

    def __init__(self, source: type, read: str | Callable[[Any], Any], attributes: tuple[str, ...] = ()) -> None:
        self.source = source
        self.attributes = (read.partition(".")[0],) if isinstance(read, str) else attributes
        self.path = read if isinstance(read, str) else None
        self.read: Callable[[Any], Any] = attrgetter(read) if isinstance(read, str) else read

    def __call__(self, source: Any, _info: Any, **arguments: Any) -> Any:
        return self.read(source, **arguments)


def is_typename(details: FieldDetailsList) -> bool:
    return details[0].node.name.value == "__typename"


def completer(
    kind: GraphQLObjectType, roots: GroupedFieldSet, subfields: Subfields
) -> tuple[Complete, RecordSelection]:
    """A function that takes the results of the root fields except `__typename`, and what it reads of records. It is a
    generator, which stops after each slice of the rows and returns the data.
    """
    writer = _FunctionWriter(subfields)
    parameters, items = [], []
    for key, details in roots.items():
        if is_typename(details):
            items.append(f"{key!r}: {kind.name!r}")
            continue
        parameters.append(value := writer.new_name())
        items.append(f"{key!r}: {value}")
        writer.value(kind.fields[details[0].node.name.value].type, details, value, 1)
    writer.line(1, f"return {{{', '.join(items)}}}")
    writer.line(1, "yield")
    return writer.compile(f"def complete({', '.join(parameters)}):")


class _FunctionWriter:
    """Each value has a variable: first the result that was read, then the completed value."""

    def __init__(self, subfields: Subfields) -> None:
        self._subfields = subfields
        self._lines: list[str] = []
        self._numbers = count()
        self._constants: dict[str, Any] = {}
        self._record_fields: set[str] | None = None
        self._row_names: list[tuple[str, ...] | None] = []
        self._lines.append(" rows = 0")

    def compile(self, head: str) -> tuple[Complete, RecordSelection]:
        try:
            code = compile("\n".join([head, *self._lines]), "<plan>", "exec")
        except SyntaxError:  # nested too deeply for Python
            raise Unplanned from None
        exec(code, self._constants)  # noqa: S102 - contains only GraphQL names, schema names and the words below
        fields = None if self._record_fields is None else frozenset(self._record_fields)
        row_names = self._row_names[0] if len(self._row_names) == 1 else None
        return self._constants.pop("complete"), RecordSelection(fields, row_names)

    def line(self, depth: int, text: str) -> None:
        self._lines.append(" " * depth + text)

    def new_name(self) -> str:
        return f"v{next(self._numbers)}"

    def value(self, kind: Any, details: FieldDetailsList, name: str, depth: int) -> None:
        """The code for each kind raises for null; the code around it skips null where the type is nullable."""
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        else:
            self.line(depth, f"if {name} is not None:")
            depth += 1
        if isinstance(kind, GraphQLList):
            self._list(kind, details, name, depth)
        elif isinstance(kind, GraphQLObjectType):
            self._object(kind, details, name, depth)
        elif isinstance(kind, GraphQLEnumType):
            values = [one.value for one in kind.values.values() if one.value is not None]
            words = {value: kind.coerce_output_value(value) for value in values}
            self.line(depth, f"{name} = {self._constant(words)}[{name}]")
        elif isinstance(kind, GraphQLScalarType):
            self._scalar(kind, name, depth)
        else:
            raise Unplanned

    def _list(self, kind: GraphQLList[Any], details: FieldDetailsList, name: str, depth: int) -> None:
        items, item = self.new_name(), self.new_name()
        row = kind.of_type.of_type if isinstance(kind.of_type, GraphQLNonNull) else kind.of_type
        if isinstance(row, GraphQLObjectType) and _source_class(row) is not dict:
            selected = {key: below[0].node.name.value for key, below in self._subfields(row, details).items()}
            plain = all(key == field_name and field_name in row.fields for key, field_name in selected.items())
            self._row_names.append(tuple(selected) if plain else None)
            self.line(depth, f"if {name}.__class__ is not {self._constant(Fragment)}:")
            depth += 1
        self.line(depth, f"if {name}.__class__ is not list and {name}.__class__ is not tuple: raise TypeError")
        self.line(depth, f"{items} = []")
        self.line(depth, f"for {item} in {name}:")
        self.value(kind.of_type, details, item, depth + 1)
        self.line(depth + 1, f"{items}.append({item})")
        self.line(depth + 1, "rows += 1")
        self.line(depth + 1, f"if not rows % {SLICE}: yield")
        self.line(depth, f"{name} = {items}")

    def _object(self, kind: GraphQLObjectType, details: FieldDetailsList, name: str, depth: int) -> None:
        source_class = _source_class(kind)
        source = self._constant(source_class)
        test = f"{name}.__class__ is not {source}"
        if source_class is not dict:
            test += f" and getattr({name}, 'projection_of', None) is not {source}"
        self.line(depth, f"if {test}: raise TypeError")
        items = []
        for key, below in self._subfields(kind, details).items():
            if is_typename(below):
                items.append(f"{key!r}: {kind.name!r}")
                continue
            field_name = below[0].node.name.value
            value, field = self.new_name(), kind.fields[field_name]
            self.line(depth, f"{value} = {self._read(field, below[0].node, name)}")
            self.value(field.type, below, value, depth)
            items.append(f"{key!r}: {value}")
        self.line(depth, f"{name} = {{{', '.join(items)}}}")

    def _read(self, field: Any, node: FieldNode, source: str) -> str:
        if field.resolve is None:
            if field.args:
                raise Unplanned
            return f"{source}.get({node.name.value!r})"
        assert isinstance(field.resolve, Reader)  # _source_class checked it
        path, read = field.resolve.path, field.resolve.read
        self._record_fields = (self._record_fields or set()) | set(field.resolve.attributes)
        if field.args:
            read = partial(read, **constant_arguments(field.args, node.arguments or ()))
        return f"{self._constant(read)}({source})" if path is None else f"{source}.{path}"

    def _scalar(self, kind: GraphQLScalarType, name: str, depth: int) -> None:
        coerce = kind.coerce_output_value
        bounds = (GRAPHQL_MIN_INT, GRAPHQL_MAX_INT) if kind is GraphQLInt else getattr(coerce, "bounds", None)
        if kind.name in _CLASSES:
            self.line(depth, f"if {name}.__class__ is not {_CLASSES[kind.name]}: raise TypeError")
        elif bounds is not None:
            least, most = bounds
            self.line(depth, f"if {name}.__class__ is not int or not {least} <= {name} <= {most}: raise ValueError")
        else:
            self.line(depth, f"{name} = {self._constant(partial(_leaf, coerce))}({name})")

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name


def _source_class(kind: GraphQLObjectType) -> type:
    """The class of the objects that resolvers return for this type: that of its readers, or dict."""
    resolvers = {field.resolve for field in kind.fields.values()}
    sources = {dict if one is None else one.source if isinstance(one, Reader) else None for one in resolvers}
    source = sources.pop()
    if source is None or sources or kind.is_type_of is not None:
        raise Unplanned
    return source


def _leaf(coerce: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, Exception) or isawaitable(value):
        raise TypeError
    coerced = coerce(value)
    if coerced is None:
        raise ValueError
    return coerced


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
