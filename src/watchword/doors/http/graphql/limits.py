"""Limits: what a document may ask for, counted before it is validated.

At most 100 kB of text, 5,000 lexical tokens, a depth of 20, 20 root fields, and 1,000 fields once fragments are
put in their places, of which 100 may repeat another in the same place: validation compares each with each.
"""

from dataclasses import dataclass, field

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
)

from watchword.domain.errors import Fault, Reason

MAX_BYTES = 100_000
MAX_TOKENS = 5_000
MAX_DEPTH = 20
MAX_ROOT_FIELDS = 20
MAX_FIELDS = 1_000
MAX_REPEATED = 100


def too_complex(message: str) -> Fault:
    return Fault(Reason.DOCUMENT_TOO_COMPLEX, message)


@dataclass(frozen=True, slots=True)
class _Size:
    roots: int = 0
    fields: int = 0
    depth: int = 0
    repeated: int = 0
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Counter:
    fragments: dict[str, FragmentDefinitionNode]
    _known: dict[str, _Size] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def size(self, selections: SelectionSetNode) -> _Size:
        roots = fields = depth = repeated = 0
        names: set[str] = set()
        for node in selections.selections:
            part = self._part(node)
            roots += part.roots
            # Counting stops where it is enough, so that nested fragments cannot make the numbers themselves a burden.
            fields = min(fields + part.fields, MAX_FIELDS + 1)
            depth = max(depth, part.depth)
            repeated = min(repeated + part.repeated + len(names & part.names), MAX_REPEATED + 1)
            names |= part.names
        return _Size(roots, fields, depth, repeated, frozenset(names))

    def _part(self, node: SelectionNode) -> _Size:
        match node:
            case FieldNode():
                name = (node.alias or node.name).value
                below = self.size(node.selection_set) if node.selection_set else _Size()
                return _Size(1, 1 + below.fields, 1 + below.depth, below.repeated, frozenset({name}))
            case InlineFragmentNode():
                return self.size(node.selection_set)
            case FragmentSpreadNode():
                return self._fragment(node.name.value)
        return _Size()

    def _fragment(self, name: str) -> _Size:
        """A cycle or an unknown name counts nothing here: validation refuses it."""
        if name not in self._known:
            if name in self._open or name not in self.fragments:
                return _Size()
            self._open.add(name)
            self._known[name] = self.size(self.fragments[name].selection_set)
            self._open.discard(name)
        return self._known[name]


def check_limits(document: DocumentNode) -> None:
    definitions = document.definitions
    counter = _Counter({d.name.value: d for d in definitions if isinstance(d, FragmentDefinitionNode)})
    for definition in definitions:
        if not isinstance(definition, OperationDefinitionNode | FragmentDefinitionNode):
            continue
        size = counter.size(definition.selection_set)
        if size.depth > MAX_DEPTH:
            raise too_complex(f"The document must not nest fields deeper than {MAX_DEPTH}.")
        if size.fields > MAX_FIELDS:
            raise too_complex(f"The document must not select more than {MAX_FIELDS:,} fields, fragments included.")
        if size.repeated > MAX_REPEATED:
            raise too_complex(
                f"The document must not repeat fields in one place more than {MAX_REPEATED} times in all."
            )
        if isinstance(definition, OperationDefinitionNode) and size.roots > MAX_ROOT_FIELDS:
            raise too_complex(f"An operation must not have more than {MAX_ROOT_FIELDS} root fields.")
