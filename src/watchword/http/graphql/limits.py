"""Limits: what a document may ask for, counted before it is validated.

At most 100 kB of text, 5,000 lexical tokens, a depth of 20, 20 root fields, and 1,000 fields once fragments are
put in their places, of which 100 may repeat another in the same place: validation compares each with each. What is
written into it besides is bounded too: lines, definitions, variables, directives, values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from graphql import (
    ArgumentNode,
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    ValueNode,
)

from watchword.domain.errors import Fault, Reason

MAX_BYTES = 100_000
MAX_TOKENS = 5_000
MAX_DEPTH = 20
MAX_ROOT_FIELDS = 20
MAX_FIELDS = 1_000
MAX_REPEATED = 100
MAX_INTROSPECTIONS = 2
MAX_LINES = 5_000
"""Each error says in which line it is, and counts them from the first."""
MAX_OPERATIONS = 50
MAX_FRAGMENTS = 50
MAX_VARIABLES = 100
MAX_DIRECTIVES = 100
MAX_WRITTEN = 1_200

_INTROSPECTIONS = frozenset({"__schema", "__type"})


def too_complex(message: str) -> Fault:
    return Fault(Reason.DOCUMENT_TOO_COMPLEX, message)


@dataclass(frozen=True, slots=True)
class _Size:
    roots: int = 0
    fields: int = 0
    depth: int = 0
    repeated: int = 0
    renamed: int = 0
    """Fields that repeat another, if under another name."""
    introspections: int = 0
    """With the fields that are repeated below them."""
    widest: int = 0
    """Of its fields, how many the widest has in it, with itself."""
    keys: frozenset[str] = frozenset()
    """Under which names they are answered."""
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Counter:
    fragments: dict[str, FragmentDefinitionNode]
    written: int = 0
    """Arguments and values, as far as they stand in the document."""
    directives: int = 0
    _known: dict[str, _Size] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def size(self, selections: SelectionSetNode) -> _Size:
        roots = fields = depth = repeated = renamed = introspections = widest = 0
        keys: set[str] = set()
        names: set[str] = set()
        for node in selections.selections:
            part = self._part(node)
            roots += part.roots
            # Counting stops where it is enough, so that nested fragments cannot make the numbers themselves a burden.
            fields = min(fields + part.fields, MAX_FIELDS + 1)
            depth = max(depth, part.depth)
            repeated = min(repeated + part.repeated + len(keys & part.keys), MAX_REPEATED + 1)
            renamed = min(renamed + part.renamed + len(names & part.names), MAX_REPEATED + 1)
            introspections = min(introspections + part.introspections, MAX_INTROSPECTIONS + 1)
            widest = max(widest, part.widest)
            keys |= part.keys
            names |= part.names
        found = (roots, fields, depth, repeated, renamed, introspections, widest)
        return _Size(*found, frozenset(keys), frozenset(names))

    def fragment(self, name: str) -> _Size:
        """A cycle or an unknown name counts nothing here: validation refuses it."""
        if name not in self._known:
            if name in self._open or name not in self.fragments:
                return _Size()
            self._open.add(name)
            self._known[name] = self.size(self.fragments[name].selection_set)
            self._open.discard(name)
        return self._known[name]

    def note(self, directives: Iterable[DirectiveNode] | None) -> None:
        for directive in directives or ():
            self.directives += 1
            self.note_arguments(directive.arguments)

    def note_arguments(self, arguments: Iterable[ArgumentNode] | None) -> None:
        for argument in arguments or ():
            self.written += 1
            self.note_value(argument.value)

    def note_value(self, value: ValueNode) -> None:
        below = [value]
        while below:
            node = below.pop()
            if isinstance(node, ListValueNode):
                below += node.values
                self.written += len(node.values)
            elif isinstance(node, ObjectValueNode):
                below += [one.value for one in node.fields]
                self.written += len(node.fields)

    def _part(self, node: SelectionNode) -> _Size:
        self.note(node.directives)
        match node:
            case FieldNode():
                self.note_arguments(node.arguments)
                return self._field(node)
            case InlineFragmentNode():
                return self.size(node.selection_set)
            case FragmentSpreadNode():
                return self.fragment(node.name.value)
        return _Size()

    def _field(self, node: FieldNode) -> _Size:
        name = node.name.value
        below = self.size(node.selection_set) if node.selection_set else _Size()
        return _Size(
            roots=1,
            fields=1 + below.fields,
            depth=1 + below.depth,
            repeated=below.repeated,
            renamed=below.renamed,
            introspections=1 + below.renamed if name in _INTROSPECTIONS else 0,
            widest=1 + below.fields,
            keys=frozenset({node.alias.value if node.alias else name}),
            names=frozenset({name}),
        )


def check_text(text: str) -> None:
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise too_complex(f"The document must have at most {MAX_BYTES:,} bytes.")
    if text.count("\n") + text.count("\r") >= MAX_LINES:
        raise too_complex(f"The document must have at most {MAX_TOKENS:,} lexical tokens and {MAX_LINES:,} lines.")


class Extent(NamedTuple):
    widest: int
    """How many fields its widest root field has: so many values has each row of a list."""
    fields: int
    """How many its operations select, fragments included."""


def check_limits(document: DocumentNode) -> Extent:
    operations = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
    fragments = {d.name.value: d for d in document.definitions if isinstance(d, FragmentDefinitionNode)}
    counter = _Counter(fragments)
    sizes = [counter.size(operation.selection_set) for operation in operations]
    for size in (*sizes, *(counter.fragment(name) for name in fragments)):
        _check_size(size)
    if any(size.roots > MAX_ROOT_FIELDS for size in sizes):
        raise too_complex(f"An operation must not have more than {MAX_ROOT_FIELDS} root fields.")
    if len(document.definitions) - len(operations) > MAX_FRAGMENTS:
        raise too_complex(f"The document must not have more than {MAX_FRAGMENTS} fragments, nor nest them deeply.")
    if len(operations) > MAX_OPERATIONS:
        raise too_complex(f"The document must not have more than {MAX_OPERATIONS} operations.")
    for operation in operations:
        _check_variables(operation, counter)
    for definition in (*operations, *fragments.values()):
        counter.note(definition.directives)
    if counter.directives > MAX_DIRECTIVES:
        raise too_complex(f"The document must not have more than {MAX_DIRECTIVES} directives.")
    if counter.written > MAX_WRITTEN:
        raise too_complex(
            f"The document must not have more than {MAX_WRITTEN:,} arguments and values written into it; "
            "send them as variables."
        )
    return Extent(max((size.widest for size in sizes), default=0), sum(size.fields for size in sizes))


def _check_variables(operation: OperationDefinitionNode, counter: _Counter) -> None:
    variables = operation.variable_definitions or ()
    if len(variables) > MAX_VARIABLES:
        raise too_complex(f"An operation must not declare more than {MAX_VARIABLES} variables.")
    for variable in variables:
        counter.note(variable.directives)
        if variable.default_value is not None:
            counter.note_value(variable.default_value)


def _check_size(size: _Size) -> None:
    if size.depth > MAX_DEPTH:
        raise too_complex(f"The document must not nest fields deeper than {MAX_DEPTH}.")
    if size.fields > MAX_FIELDS:
        raise too_complex(f"The document must not select more than {MAX_FIELDS:,} fields, fragments included.")
    if size.repeated > MAX_REPEATED:
        raise too_complex(f"The document must not repeat fields in one place more than {MAX_REPEATED} times in all.")
    if size.introspections > MAX_INTROSPECTIONS:
        raise too_complex(
            f"The document must not ask for __schema and __type more than {MAX_INTROSPECTIONS} times, "
            "fields repeated below them included."
        )
