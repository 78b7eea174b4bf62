"""Completers: from what root resolvers returned to what is answered, as a Python function written for one selection.

A completer knows the good case alone. Whatever else it meets - null where there must be something, a value of another
class, something that is yet to be awaited - it raises, and graphql-core completes the same values in its own way.
"""

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from itertools import count
from operator import attrgetter
from typing import Any

from graphql import (
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLID,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLString,
)
from graphql.execution.collect_fields import FieldDetailsList, GroupedFieldSet
from graphql.type.scalars import GRAPHQL_MAX_INT, GRAPHQL_MIN_INT

from watchword.http.graphql.inputs import Unplanned

Subfields = Callable[[GraphQLObjectType, FieldDetailsList], GroupedFieldSet]
Complete = Callable[..., dict[str, Any]]
Part = type | None

_CLASSES = {GraphQLString.name: "str", GraphQLID.name: "str", GraphQLBoolean.name: "bool"}


class Reader:
    """A resolver that only looks at its source, which is of one class: a path of attributes, or a function of some."""

    def __init__(self, source: type, read: str | Callable[[Any], Any], attributes: tuple[str, ...] = ()) -> None:
        self.source = source
        self.attributes = (read.partition(".")[0],) if isinstance(read, str) else attributes
        self.path = read if isinstance(read, str) else None
        self.read: Callable[[Any], Any] = attrgetter(read) if isinstance(read, str) else read

    def __call__(self, source: Any, _info: Any) -> Any:
        return self.read(source)


def is_typename(details: FieldDetailsList) -> bool:
    return details[0].node.name.value == "__typename"


def completer(kind: GraphQLObjectType, roots: GroupedFieldSet, subfields: Subfields) -> tuple[Complete, Part]:
    """Takes what the root fields returned, but for `__typename`; and which part of a record is enough for it."""
    writer = _Writer(subfields)
    taken, shown = [], []
    for key, details in roots.items():
        if is_typename(details):
            shown.append(f"{key!r}: {kind.name!r}")
            continue
        taken.append(value := writer.new_name())
        shown.append(f"{key!r}: {value}")
        writer.value(kind.fields[details[0].node.name.value].type, details, value, 1)
    writer.say(1, f"return {{{', '.join(shown)}}}")
    return writer.written(f"def complete({', '.join(taken)}):")


class _Writer:
    """Every value has a variable, which holds first what was read and then what is answered."""

    def __init__(self, subfields: Subfields) -> None:
        self._subfields = subfields
        self._lines: list[str] = []
        self._numbers = count()
        self._known: dict[str, Any] = {"Part": None}
        self._attributes: dict[Any, set[str]] = {}

    def written(self, head: str) -> tuple[Complete, Part]:
        try:
            code = compile("\n".join([head, *self._lines]), "<plan>", "exec")
        except SyntaxError:  # Python does not nest as deeply
            raise Unplanned from None
        exec(code, self._known)  # noqa: S102 - made of names that GraphQL's grammar and the schema allow, and of our words
        for source, attributes in self._attributes.items():
            self._known["Part"] = source.part_of(attributes)
        return self._known.pop("complete"), self._known["Part"]

    def say(self, depth: int, line: str) -> None:
        self._lines.append(" " * depth + line)

    def new_name(self) -> str:
        return f"v{next(self._numbers)}"

    def value(self, kind: Any, details: FieldDetailsList, name: str, depth: int) -> None:
        """What is written for each kind raises for null, which is let past where it may be."""
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        else:
            self.say(depth, f"if {name} is not None:")
            depth += 1
        if isinstance(kind, GraphQLList):
            self._list(kind, details, name, depth)
        elif isinstance(kind, GraphQLObjectType):
            self._object(kind, details, name, depth)
        elif isinstance(kind, GraphQLEnumType):
            values = [one.value for one in kind.values.values() if one.value is not None]
            words = {value: kind.coerce_output_value(value) for value in values}
            self.say(depth, f"{name} = {self._constant(words)}[{name}]")
        elif isinstance(kind, GraphQLScalarType):
            self._scalar(kind, name, depth)
        else:
            raise Unplanned

    def _list(self, kind: GraphQLList[Any], details: FieldDetailsList, name: str, depth: int) -> None:
        items, item = self.new_name(), self.new_name()
        self.say(depth, f"if {name}.__class__ is not list and {name}.__class__ is not tuple: raise TypeError")
        self.say(depth, f"{items} = []")
        self.say(depth, f"for {item} in {name}:")
        self.value(kind.of_type, details, item, depth + 1)
        self.say(depth + 1, f"{items}.append({item})")
        self.say(depth, f"{name} = {items}")

    def _object(self, kind: GraphQLObjectType, details: FieldDetailsList, name: str, depth: int) -> None:
        source = self._constant(_source_of(kind))
        self.say(depth, f"if {name}.__class__ is not {source} and {name}.__class__ is not Part: raise TypeError")
        shown = []
        for key, below in self._subfields(kind, details).items():
            if is_typename(below):
                shown.append(f"{key!r}: {kind.name!r}")
                continue
            field_name = below[0].node.name.value
            value, field = self.new_name(), kind.fields[field_name]
            self.say(depth, f"{value} = {self._read(field, field_name, name)}")
            self.value(field.type, below, value, depth)
            shown.append(f"{key!r}: {value}")
        self.say(depth, f"{name} = {{{', '.join(shown)}}}")

    def _read(self, field: Any, field_name: str, source: str) -> str:
        if field.args:
            raise Unplanned
        if field.resolve is None:
            return f"{source}.get({field_name!r})"
        assert isinstance(field.resolve, Reader)  # or the type's source would not be known
        path = field.resolve.path
        self._attributes.setdefault(field.resolve.source, set()).update(field.resolve.attributes)
        return f"{self._constant(field.resolve.read)}({source})" if path is None else f"{source}.{path}"

    def _scalar(self, kind: GraphQLScalarType, name: str, depth: int) -> None:
        coerce = kind.coerce_output_value
        bounds = (GRAPHQL_MIN_INT, GRAPHQL_MAX_INT) if kind is GraphQLInt else getattr(coerce, "bounds", None)
        if kind.name in _CLASSES:
            self.say(depth, f"if {name}.__class__ is not {_CLASSES[kind.name]}: raise TypeError")
        elif bounds is not None:
            least, most = bounds
            self.say(depth, f"if {name}.__class__ is not int or not {least} <= {name} <= {most}: raise ValueError")
        else:
            self.say(depth, f"{name} = {self._constant(partial(_leaf, coerce))}({name})")

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._known)}"
        self._known[name] = value
        return name


def _source_of(kind: GraphQLObjectType) -> type:
    """The class of what is shown as this type: of its readers, or a dict where its fields are just looked up."""
    resolvers = {field.resolve for field in kind.fields.values()}
    sources = {dict if one is None else one.source if isinstance(one, Reader) else None for one in resolvers}
    source = sources.pop()
    if source is None or sources or kind.is_type_of is not None:
        raise Unplanned
    return source


def _leaf(coerce: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, Exception) or isawaitable(value):
        raise TypeError
    shown = coerce(value)
    if shown is None:
        raise ValueError
    return shown
