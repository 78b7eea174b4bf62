"""Completers of the fast path: they turn the results of root resolvers into response data, with a Python function
generated per selection.

They raise on what does not fit (null for a non-null field, a value of another class, an awaitable), and graphql-core
completes the same results.
"""

from collections.abc import Callable, Generator
from functools import partial
from inspect import isawaitable
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from graphql import GraphQLEnumType, GraphQLInt, GraphQLList, GraphQLNonNull, GraphQLObjectType, GraphQLScalarType
from graphql.execution.collect_fields import FieldDetailsList, GroupedFieldSet
from graphql.language import FieldNode
from graphql.type.scalars import GRAPHQL_MAX_INT, GRAPHQL_MIN_INT
from orjson import Fragment

from watchword.http.graphql.inputs import Unplanned, constant_arguments
from watchword.http.processor_budget import SLICE

Subfields = Callable[[GraphQLObjectType, FieldDetailsList], GroupedFieldSet]
Complete = Callable[..., Generator[None, None, dict[str, Any]]]

_CLASSES = {"String": "str", "ID": "str", "Boolean": "bool"}


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
