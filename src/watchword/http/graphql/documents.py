"""Documents: parse, limit, validate and cache GraphQL documents.

Limits are checked before validation: at most 100 kB of text, 5,000 lexical tokens, a depth of 20, 20 root fields, and
1,000 fields after expanding fragments, of which 100 may repeat another field of the same selection, because validation
compares each with each. Lines, definitions, variables, directives and literal values are limited too.
"""

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, NamedTuple

from graphql import (
    ExecutionResult,
    GraphQLEnumType,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLObjectType,
    GraphQLSchema,
    TypeInfo,
    TypeInfoVisitor,
    Visitor,
    execute,
    parse,
    validate,
    visit,
)
from graphql.execution import executor
from graphql.language import ast
from graphql.pyutils import gather_with_cancel
from graphql.validation.rules import overlapping_fields_can_be_merged

from watchword.basics.errors import Fault, Reason
from watchword.basics.networks import MAX_NETWORKS
from watchword.basics.processor_time import measured
from watchword.http.errors import MAX_SEARCHED, without_tokens
from watchword.http.graphql.fastpath import UNMETERED, FastPath, Memo, Meter
from watchword.http.processor_budget import Cost
from watchword.journal.day_counts import KEPT_DAYS

MAX_BYTES = 100_000
MAX_TOKENS = 5_000
MAX_DEPTH = 20
MAX_ROOT_FIELDS = 20
MAX_FIELDS = 1_000
MAX_REPEATED = 100
MAX_INTROSPECTIONS = 2
MAX_LINES = 5_000
"""Each error reports its line number, and counts lines to find it."""
MAX_OPERATIONS = 50
MAX_FRAGMENTS = 50
MAX_VARIABLES = 100
MAX_DIRECTIVES = 100
MAX_WRITTEN = 1_200

_INTROSPECTIONS = frozenset({"__schema", "__type"})
CACHE_BYTES = 32 * 1024 * 1024
# Measured with tracemalloc (tests/http/test_documents.py): bytes per byte of text, per plan, and per field of a plan.
WEIGHT = 200
PLAN_WEIGHT, FIELD_WEIGHT = 8_000, 800
MAX_ERRORS = 5
SMALL_BITS = 11
"""Bodies of less than 2 KiB have one cost, and those of each power of two above."""
# Comparisons of fields that may be merged. 1,000 fields with 100 repeated take 141,000; the library's limit of 500,000
# would let a document with many operations take several times as long.
overlapping_fields_can_be_merged.MAX_COMPLEXITY_BUDGET = 150_000


async def _measured_gather(*awaitables: Any) -> list[Any]:
    return await gather_with_cancel(*map(measured, awaitables))


# graphql-core completes lists and objects in tasks.
executor.gather_with_cancel = _measured_gather  # type: ignore[attr-defined]

# Input type names that DataHub clients use.
SYNONYMS = {"CreateAccessTokenInput": "GetAccessTokenInput", "ListAccessTokenInput": "ListAccessTokensInput"}

NAME_FIELDS = ("displayName", "actorName", "ownerName", "createdByName", "changedByName", "names", "targetName")
USES_FIELD, NETWORKS_FIELD = "usesByDay", "networks"
USES_WIDTH = 2 * KEPT_DAYS
"""The values that `usesByDay` may have in a row."""
PROFILE_FIELDS = ("info", "properties", "editableProperties", "status", "isNativeUser", "relationships")
"""Of a user: more than its names."""


class InvalidDocument(Exception):
    """The document does not parse or does not match the schema."""

    def __init__(self, errors: list[GraphQLError], document: ast.DocumentNode | None = None) -> None:
        super().__init__("invalid document")
        self.errors = errors
        self.document = document


class Reads(NamedTuple):
    """Whether a document selects what takes queries of its own."""

    names: bool = False
    """Names of actors."""
    profiles: bool = False
    """One of PROFILE_FIELDS of a user."""
    uses: bool = False
    networks: bool = False


NOTHING = Reads()


@dataclass(slots=True)
class PreparedDocument:
    schema: GraphQLSchema
    node: ast.DocumentNode
    mutates: bool
    max_row_fields: int
    """The most values of a row of a list: the number of fields of its largest root field, uses by day each."""
    fastpath: FastPath
    weight: int
    """Bytes, including its plans."""
    reads: Reads = NOTHING
    fallback_logged: bool = False
    _costs: defaultdict[int, Cost] = field(default_factory=lambda: defaultdict(Cost))
    """By the size of the variables: large ones say nothing about the requests of others."""

    def cost(self, body: bytes) -> Cost:
        return self._costs[max(SMALL_BITS, len(body).bit_length())]

    async def execute(
        self,
        name: str | None,
        variables: dict[str, Any],
        context: Any,
        meter: Meter = UNMETERED,
        memo: Memo | None = None,
    ) -> tuple[ExecutionResult, str | None]:
        """Executes an operation on the fast path, or else with graphql-core; then it returns the cause too. Compiling a
        plan, and execution by graphql-core from the start, run within `meter`. `memo` belongs to the same variables.
        """
        found = await self.fastpath.execute(name, variables, context, meter, Memo() if memo is None else memo)
        if isinstance(found, ExecutionResult):
            return found, None
        with meter if found.middleware is None else UNMETERED:
            result = execute(
                self.schema,
                self.node,
                context_value=context,
                variable_values=variables,
                operation_name=name,
                max_coercion_errors=5,
                hide_suggestions=True,
                middleware=found.middleware,
            )
        return await result if isawaitable(result) else result, found.cause


class _DocumentCache:
    """Least recently used, limited in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._documents: OrderedDict[str, PreparedDocument] = OrderedDict()
        self.bytes = 0

    def get(self, text: str) -> PreparedDocument | None:
        found = self._documents.get(text)
        if found is not None:
            self._documents.move_to_end(text)
        return found

    def __contains__(self, text: str) -> bool:
        return text in self._documents

    def add(self, text: str, prepared: PreparedDocument) -> None:
        self._documents[text] = prepared
        self.bytes += prepared.weight
        while self.bytes > self._max_bytes:
            _, oldest = self._documents.popitem(last=False)
            self.bytes -= oldest.weight

    def take(self, text: str) -> PreparedDocument | None:
        found = self._documents.pop(text, None)
        if found is not None:
            self.bytes -= found.weight
        return found


class Documents:
    def __init__(self, schema: GraphQLSchema, max_bytes: int = CACHE_BYTES) -> None:
        """Half of the bytes hold documents seen once, so that those cannot evict documents in regular use."""
        self._schema = schema
        self._seen_once, self._seen_again = _DocumentCache(max_bytes // 2), _DocumentCache(max_bytes // 2)

    @property
    def cached_bytes(self) -> int:
        return self._seen_once.bytes + self._seen_again.bytes

    def __contains__(self, text: str) -> bool:
        return text in self._seen_again or text in self._seen_once

    def get(self, text: str, meter: Meter = UNMETERED) -> PreparedDocument:
        """Prepares a document that is not cached within `meter`."""
        found = self._seen_again.get(text)
        if found is not None:
            return found
        found = self._seen_once.take(text)
        if found is not None:
            self._seen_again.add(text, found)
            return found
        with meter:
            prepared = self._prepare(text)
        self._seen_once.add(text, prepared)
        return prepared

    def _prepare(self, text: str) -> PreparedDocument:
        check_text(text)
        try:
            document = parse(
                text, max_lexical_tokens=MAX_TOKENS, max_comments=MAX_TOKENS, allow_empty_selection_sets=False
            )
            widest, fields = check_limits(document)
            if any(name in text for name in SYNONYMS):
                document = visit(document, _RenameTypes())
            errors = validate(self._schema, document, max_errors=MAX_ERRORS, hide_suggestions=True)
        except GraphQLError as error:
            if error.message.endswith(_PARSING_ABORTED):
                raise too_complex(
                    f"The document must have at most {MAX_TOKENS:,} lexical tokens and not be nested deeply."
                ) from None
            raise InvalidDocument([error]) from None
        except RecursionError:
            raise too_complex("The document is nested too deeply.") from None
        if any(error.message == _VALIDATION_ABORTED for error in errors):  # MAX_COMPLEXITY_BUDGET
            raise too_complex("The document must not repeat a field hundreds of times or nest fragments deeply.")
        if errors:
            raise InvalidDocument(errors, document)
        operations = [d for d in document.definitions if isinstance(d, ast.OperationDefinitionNode)]
        fastpath = FastPath(self._schema, document)
        weight = len(text) * WEIGHT + len(operations) * PLAN_WEIGHT + fields * FIELD_WEIGHT
        mutates = any(d.operation is ast.OperationType.MUTATION for d in operations)
        names = any(name in text for name in NAME_FIELDS)
        uses, networks = text.count(USES_FIELD), text.count(NETWORKS_FIELD)
        reads = Reads(names, _reads_profiles(self._schema, document, text), uses > 0, networks > 0)
        widest += uses * USES_WIDTH + networks * MAX_NETWORKS
        return PreparedDocument(self._schema, document, mutates, widest, fastpath, weight, reads)


class _RenameTypes(Visitor):
    def leave_named_type(self, node: ast.NamedTypeNode, *_: Any) -> ast.NamedTypeNode | None:
        ours = SYNONYMS.get(node.name.value)
        return ast.NamedTypeNode(name=ast.NameNode(value=ours, loc=node.name.loc), loc=node.loc) if ours else None


class _ProfileFinder(Visitor):
    def __init__(self, types: TypeInfo) -> None:
        super().__init__()
        self._types = types
        self.found = False

    def enter_field(self, node: ast.FieldNode, *_: Any) -> None:
        parent = self._types.get_parent_type()
        self.found |= node.name.value in PROFILE_FIELDS and parent is not None and parent.name in {"CorpUser", "Entity"}


def _reads_profiles(schema: GraphQLSchema, document: ast.DocumentNode, text: str) -> bool:
    if not any(name in text for name in PROFILE_FIELDS):
        return False
    types = TypeInfo(schema)
    finder = _ProfileFinder(types)
    visit(document, TypeInfoVisitor(types, finder))
    return finder.found


def too_complex(message: str) -> Fault:
    return Fault(Reason.DOCUMENT_TOO_COMPLEX, message)


@dataclass(frozen=True, slots=True)
class _SelectionSize:
    roots: int = 0
    fields: int = 0
    depth: int = 0
    repeated: int = 0
    renamed: int = 0
    """Fields that repeat another field under another alias."""
    introspections: int = 0
    """Includes fields repeated below them."""
    widest: int = 0
    """The size of its largest field, the field itself included."""
    keys: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Counter:
    fragments: dict[str, ast.FragmentDefinitionNode]
    _known: dict[str, _SelectionSize] = field(default_factory=dict)

    def size(self, selections: ast.SelectionSetNode) -> _SelectionSize:
        parts = [self._part(node) for node in selections.selections]
        keys = frozenset[str]().union(*(p.keys for p in parts))
        names = frozenset[str]().union(*(p.names for p in parts))
        # Each number stops at its limit: nested fragments could make it huge.
        return _SelectionSize(
            roots=sum(p.roots for p in parts),
            fields=min(sum(p.fields for p in parts), MAX_FIELDS + 1),
            depth=max((p.depth for p in parts), default=0),
            repeated=min(sum(p.repeated + len(p.keys) for p in parts) - len(keys), MAX_REPEATED + 1),
            renamed=min(sum(p.renamed + len(p.names) for p in parts) - len(names), MAX_REPEATED + 1),
            introspections=min(sum(p.introspections for p in parts), MAX_INTROSPECTIONS + 1),
            widest=max((p.widest for p in parts), default=0),
            keys=keys,
            names=names,
        )

    def fragment(self, name: str) -> _SelectionSize:
        """A cycle or an unknown name counts as empty: validation rejects it."""
        if name not in self._known:
            self._known[name] = _SelectionSize()
            if name in self.fragments:
                self._known[name] = self.size(self.fragments[name].selection_set)
        return self._known[name]

    def _part(self, node: ast.SelectionNode) -> _SelectionSize:
        match node:
            case ast.FieldNode():
                return self._field(node)
            case ast.InlineFragmentNode():
                return self.size(node.selection_set)
            case ast.FragmentSpreadNode():
                return self.fragment(node.name.value)
        return _SelectionSize()

    def _field(self, node: ast.FieldNode) -> _SelectionSize:
        name = node.name.value
        below = self.size(node.selection_set) if node.selection_set else _SelectionSize()
        return _SelectionSize(
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


def check_limits(document: ast.DocumentNode) -> tuple[int, int]:
    """Returns how many fields its largest root field has, and how many its operations select, fragments included."""
    operations = [d for d in document.definitions if isinstance(d, ast.OperationDefinitionNode)]
    fragments = {d.name.value: d for d in document.definitions if isinstance(d, ast.FragmentDefinitionNode)}
    counter = _Counter(fragments)
    sizes = [counter.size(operation.selection_set) for operation in operations]
    for size in (*sizes, *(counter.fragment(name) for name in fragments)):
        _check(size.depth, MAX_DEPTH, "nest fields deeper than {}")
        _check(size.fields, MAX_FIELDS, "select more than {} fields, fragments included")
        _check(size.repeated, MAX_REPEATED, "repeat fields in one place more than {} times in all")
        limit = "ask for __schema and __type more than {} times, fields repeated below them included"
        _check(size.introspections, MAX_INTROSPECTIONS, limit)
    for size in sizes:
        _check(size.roots, MAX_ROOT_FIELDS, "have more than {} root fields", "An operation")
    others = len(document.definitions) - len(operations)
    _check(others, MAX_FRAGMENTS, "have more than {} fragments, nor nest them deeply")
    _check(len(operations), MAX_OPERATIONS, "have more than {} operations")
    for operation in operations:
        variables = operation.variable_definitions or ()
        _check(len(variables), MAX_VARIABLES, "declare more than {} variables", "An operation")
    nodes = list(all_nodes(document))
    directives = sum(isinstance(node, ast.DirectiveNode) for node in nodes)
    _check(directives, MAX_DIRECTIVES, "have more than {} directives")
    written = sum(isinstance(node, ast.ArgumentNode | ast.ObjectFieldNode) for node in nodes)
    written += sum(len(node.values) for node in nodes if isinstance(node, ast.ListValueNode))
    _check(written, MAX_WRITTEN, "have more than {} literal arguments and values; send them as variables")
    return max((size.widest for size in sizes), default=0), sum(size.fields for size in sizes)


def _check(number: int, most: int, limit: str, what: str = "The document") -> None:
    if number > most:
        raise too_complex(f"{what} must not {limit.format(f'{most:,}')}.")


def all_nodes(node: ast.Node) -> Iterator[ast.Node]:
    """The node and all nodes below it."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        for key in ast.QUERY_DOCUMENT_KEYS.get(node.kind, ()):
            below = getattr(node, key)
            if isinstance(below, ast.Node):
                pending.append(below)
            elif below:
                pending += below


# What graphql-core says only in English. Its errors have no code, and no names but in their messages: a document beyond
# a limit raises the same classes as any invalid document, and an unknown name comes without those that are allowed. So
# the messages are searched, here alone. One that does not match is passed on as it is; tests/http/test_core_messages.py
# fails if graphql-core words one differently.

_PARSING_ABORTED = "Parsing aborted."
"""At the end. The document has too many tokens or nests too deeply."""
_VALIDATION_ABORTED = "Validation aborted."
"""All of it. The budget is spent; with more words in front of it, there are too many errors."""
_ENUM = re.compile(r"(?:in '(\w+)' enum|Enum '(\w+)' cannot represent)")
_INPUT = re.compile(r"Expected value of type '(\w+)' not to include unknown field")
_SELECTED = re.compile(r"Cannot query field '\w+' on type '(\w+)'")
_ARGUMENT = re.compile(r"Unknown argument '\w+' on field '(\w+)\.(\w+)'")
_FOUND = re.compile(r",? [Ff]ound: .*", re.DOTALL)
# The start and end of a message state the problem; the middle may repeat the input.
_START, _END = 250, 150


def explain(message: str, schema: GraphQLSchema) -> str:
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
