"""Documents: parsed, limited and validated once, then kept under a bound of bytes."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLError,
    GraphQLSchema,
    NamedTypeNode,
    NameNode,
    OperationDefinitionNode,
    OperationType,
    VariableDefinitionNode,
    Visitor,
    parse,
    validate,
    visit,
)
from graphql.validation.rules import overlapping_fields_can_be_merged

from watchword.http.graphql.limits import MAX_TOKENS, check_limits, check_text, too_complex
from watchword.http.graphql.plans import UNMETERED, Metered, Plans

CACHE_BYTES = 32 * 1024 * 1024
# A parsed document weighs this many bytes for each of its text, measured with tracemalloc; see the test.
WEIGHT = 200
# A plan, of which there is one for each shape that a document may have, weighs so much, and so much for each field.
PLAN_WEIGHT, FIELD_WEIGHT = 8_000, 800
MAX_ERRORS = 5
# Validation compares fields that may be merged. An operation of 1,000 fields, 100 of them repeated, takes 141,000;
# the library's own bound of 500,000 would let many operations in one document take several times as long.
overlapping_fields_can_be_merged.MAX_COMPLEXITY_BUDGET = 150_000

# Names under which other clients declare their variables.
SYNONYMS = {"CreateAccessTokenInput": "GetAccessTokenInput", "ListAccessTokenInput": "ListAccessTokensInput"}


class InvalidDocument(Exception):
    """The document does not parse or does not fit the schema."""

    def __init__(self, errors: list[GraphQLError], document: DocumentNode | None = None) -> None:
        super().__init__("invalid document")
        self.errors = errors
        self.document = document


@dataclass(frozen=True, slots=True)
class Prepared:
    mutates: bool
    """Whether any operation in it is a mutation."""
    widest: int
    """How many fields its widest root field has."""
    plans: Plans
    weight: int
    """In bytes, with all plans there may be of it."""


class _Cache:
    """Keeps what was used last, under a bound of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[str, Prepared] = OrderedDict()
        self.bytes = 0

    def get(self, text: str) -> Prepared | None:
        found = self._kept.get(text)
        if found is not None:
            self._kept.move_to_end(text)
        return found

    def add(self, text: str, prepared: Prepared) -> None:
        self._kept[text] = prepared
        self.bytes += prepared.weight
        while self.bytes > self._most:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.weight

    def take(self, text: str) -> Prepared | None:
        found = self._kept.pop(text, None)
        if found is not None:
            self.bytes -= found.weight
        return found


class Documents:
    def __init__(self, schema: GraphQLSchema, most_bytes: int = CACHE_BYTES) -> None:
        """Half of the bytes are for documents that came once, so that they cannot displace those that came again."""
        self._schema = schema
        self._seen_once, self._seen_again = _Cache(most_bytes // 2), _Cache(most_bytes // 2)

    @property
    def kept_bytes(self) -> int:
        return self._seen_once.bytes + self._seen_again.bytes

    def get(self, text: str, metered: Metered = UNMETERED) -> Prepared:
        """What is not kept is prepared within `metered`."""
        found = self._seen_again.get(text)
        if found is not None:
            return found
        found = self._seen_once.take(text)
        if found is not None:
            self._seen_again.add(text, found)
            return found
        with metered:
            prepared = self._prepare(text)
        self._seen_once.add(text, prepared)
        return prepared

    def _prepare(self, text: str) -> Prepared:
        check_text(text)
        try:
            document = parse(
                text,
                max_lexical_tokens=MAX_TOKENS,
                max_comments=MAX_TOKENS,
                allow_empty_selection_sets=False,
            )
            extent = check_limits(document)
            if any(name in text for name in SYNONYMS):
                document = visit(document, _Rename())
            errors = validate(self._schema, document, max_errors=MAX_ERRORS, hide_suggestions=True)
        except GraphQLError as error:
            if error.message.endswith("Parsing aborted."):
                raise too_complex(
                    f"The document must have at most {MAX_TOKENS:,} lexical tokens and not be nested deeply."
                ) from None
            raise InvalidDocument([error]) from None
        except RecursionError:
            raise too_complex("The document is nested too deeply.") from None
        if any(error.message == "Validation aborted." for error in errors):  # the library's own budget
            raise too_complex("The document must not repeat a field hundreds of times or nest fragments deeply.")
        if errors:
            raise InvalidDocument(errors, document)
        operations = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
        plans = Plans(self._schema, document)
        weight = len(text) * WEIGHT + plans.most_shapes * (PLAN_WEIGHT + extent.fields * FIELD_WEIGHT)
        mutates = any(d.operation is OperationType.MUTATION for d in operations)
        return Prepared(mutates, extent.widest, plans, weight)


class _Rename(Visitor):
    """Puts our names where other clients' stand in the types of variables."""

    def enter_variable_definition(self, node: VariableDefinitionNode, *_: Any) -> VariableDefinitionNode:
        renamed: VariableDefinitionNode = visit(node, _RenameType())
        return renamed


class _RenameType(Visitor):
    def leave_named_type(self, node: NamedTypeNode, *_: Any) -> NamedTypeNode | None:
        ours = SYNONYMS.get(node.name.value)
        return NamedTypeNode(name=NameNode(value=ours, loc=node.name.loc), loc=node.loc) if ours else None
