"""Documents made at random from a schema: valid ones, with variables that fit, do not fit, are null or missing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLString,
    OperationType,
    Undefined,
    get_named_type,
    get_nullable_type,
    is_abstract_type,
    is_leaf_type,
)

Pools = Mapping[str, list[Any]]
"""Values worth trying, by the name of the argument or input field that takes them."""

WRONG: tuple[Any, ...] = (True, -1, 5, 2**40, 1.5, "zzz", "", [], [None], ["a", 5], {}, {"unknown": 1}, [[1]])
TEXTS = ["", "a", "PERSONAL", "é😀", "urn:li:corpuser:admin", 'quote " and \\ backslash', "x" * 50]


class Asked(NamedTuple):
    """What a client would send."""

    text: str
    variables: dict[str, Any]
    name: str | None
    mutates: bool


def asked(draw: Random, schema: GraphQLSchema, pools: Pools, roots: Callable[[str], bool], *, mutates: bool) -> Asked:
    """A document of one or two operations of one kind, of whose root fields only some are used."""
    kind = schema.get_root_type(OperationType.MUTATION if mutates else OperationType.QUERY)
    assert kind is not None
    first = _Operation(draw, schema, pools, roots, "a")
    texts = [first.write(kind)]
    sent = first.sent
    name = draw.choice([None, None, None, "Opa"])
    if draw.random() < 0.15:
        second = _Operation(draw, schema, pools, roots, "b")
        texts.insert(draw.randint(0, 1), second.write(kind))
        sent = sent | second.sent
        name = draw.choice(["Opa", "Opb", "Opb", None])
    if draw.random() < 0.03:
        name = "Unknown"
    if draw.random() < 0.05:
        sent["undeclared"] = 1
    return Asked("\n".join(texts), sent, name, mutates)


@dataclass(slots=True)
class _Operation:
    draw: Random
    schema: GraphQLSchema
    pools: Pools
    roots: Callable[[str], bool]
    prefix: str
    sent: dict[str, Any] = field(default_factory=dict)
    _declared: dict[str, str] = field(default_factory=dict)
    _fragments: dict[str, tuple[GraphQLObjectType, str]] = field(default_factory=dict)
    _arguments: dict[tuple[str, str], str] = field(default_factory=dict)
    """By type and key: fields that are merged have the same."""
    _conditions: list[str] = field(default_factory=list)

    def write(self, kind: GraphQLObjectType) -> str:
        selected = self._selection(kind, 4, lambda name, _: self.roots(name))
        word = "mutation" if kind is self.schema.mutation_type else "query"
        declared = ", ".join(f"${name}: {how}" for name, how in self._declared.items())
        fragments = "".join(f"\nfragment {name} on {of} {text}" for name, (of, text) in self._fragments.items())
        return f"{word} Op{self.prefix}{f'({declared})' if declared else ''} {selected}{fragments}"

    def _selection(
        self, kind: GraphQLObjectType, depth: int, may: Callable[[str, GraphQLField], bool] | None = None
    ) -> str:
        names = [n for n, f in kind.fields.items() if (may(n, f) if may else depth > 0 or _is_leaf(f))]
        parts = [self._part(kind, names, depth, may) for _ in range(self.draw.randint(1, 4))]
        return "{ " + " ".join(parts) + " }"

    def _part(
        self,
        kind: GraphQLObjectType,
        names: list[str],
        depth: int,
        may: Callable[[str, GraphQLField], bool] | None,
    ) -> str:
        roll = self.draw.random()
        if roll < 0.08 or not names:
            return self.draw.choice(["", "typename: "]) + "__typename" + self._directive()
        if roll < 0.18 and depth > 0:
            of = self.draw.choice(["", f" on {kind}"])
            return f"...{of}{self._directive()} {self._selection(kind, depth - 1, may)}"
        if roll < 0.28 and depth > 0:
            return f"...{self._fragment(kind, depth, may)}{self._directive()}"
        name = self.draw.choice(names)
        alias = self.draw.choice(["", "", f"{name}_b: "] if may is None else ["", f"{name}_b: ", f"{name}_c: "])
        return f"{alias}{name}{self._args(kind, name, alias)}{self._directive()}{self._below(kind.fields[name], depth)}"

    def _below(self, chosen: GraphQLField, depth: int) -> str:
        kind = get_named_type(chosen.type)
        if isinstance(kind, GraphQLObjectType):
            return " " + self._selection(kind, depth - 1)
        return " { __typename }" if is_abstract_type(kind) else ""

    def _fragment(self, kind: GraphQLObjectType, depth: int, may: Callable[[str, GraphQLField], bool] | None) -> str:
        known = [name for name, (of, _) in self._fragments.items() if of is kind]
        if known and self.draw.random() < 0.5:
            return self.draw.choice(known)
        text = self._selection(kind, depth - 1, may)
        name = f"F{self.prefix}{len(self._fragments)}"
        self._fragments[name] = (kind, text)
        return name

    def _directive(self) -> str:
        if self.draw.random() > 0.12:
            return ""
        condition = self.draw.choice(["true", "false", "$", "$"])
        if condition == "$":
            condition = "$" + self._condition()
        return f" @{self.draw.choice(['include', 'skip'])}(if: {condition})"

    def _condition(self) -> str:
        if self._conditions and self.draw.random() < 0.5:
            return self.draw.choice(self._conditions)
        name = f"c{self.prefix}{len(self._declared)}"
        self._declared[name] = self.draw.choice(["Boolean!", "Boolean!", "Boolean! = true", "Boolean = false"])
        self._conditions.append(name)
        if self.draw.random() < 0.9:
            self.sent[name] = self.draw.choice([True, False]) if self.draw.random() < 0.95 else None
        return name

    def _args(self, kind: GraphQLObjectType, name: str, alias: str) -> str:
        where = (kind.name, alias or name)
        if where not in self._arguments:
            given = [
                f"{arg}: {self._value(definition.type, arg)}"
                for arg, definition in kind.fields[name].args.items()
                if _is_required(definition) or self.draw.random() < 0.7
            ]
            self._arguments[where] = f"({', '.join(given)})" if given else ""
        return self._arguments[where]

    def _value(self, kind: GraphQLInputType, name: str) -> str:
        """In the document: a literal, a variable, or a literal with variables in it."""
        if self.draw.random() < 0.35:
            return self._variable(kind, name)
        return self._literal(kind, name, self._value)

    def _variable(self, kind: GraphQLInputType, name: str) -> str:
        variable = f"v{self.prefix}{len(self._declared)}"
        bare, roll = get_nullable_type(kind), self.draw.random()
        default = ""
        if roll < 0.3:
            default = f" = {self._literal(GraphQLNonNull(bare), name, self._constant)}"
        strict = isinstance(kind, GraphQLNonNull) and (not default or roll < 0.15)
        strict = strict or self.draw.random() < 0.15
        self._declared[variable] = f"{bare}{'!' if strict else ''}{default}"
        roll = self.draw.random()
        if roll < 0.08:
            self.sent[variable] = None
        elif roll < 0.15:
            self.sent[variable] = self.draw.choice(WRONG)
        elif roll < 0.9:
            self.sent[variable] = self._json(kind, name)
        return f"${variable}"

    def _constant(self, kind: GraphQLInputType, name: str) -> str:
        return self._literal(kind, name, self._constant)

    def _literal(self, kind: Any, name: str, within: Callable[[Any, str], str]) -> str:
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        elif self.draw.random() < 0.08:
            return "null"
        if isinstance(kind, GraphQLList):
            if self.draw.random() < 0.2:
                return self._literal(GraphQLNonNull(get_nullable_type(kind.of_type)), name, self._constant)
            return f"[{', '.join(within(kind.of_type, name) for _ in range(self.draw.randint(0, 3)))}]"
        if isinstance(kind, GraphQLInputObjectType):
            given = [f"{n}: {within(f.type, n)}" for n, f in kind.fields.items() if self._is_given(f)]
            return f"{{{', '.join(given)}}}"
        if kind.name == "JSON" and self.draw.random() < 0.5:
            return f"{{a: {within(GraphQLString, name)}, b: [{within(GraphQLNonNull(GraphQLInt), name)}]}}"
        value = self._leaf(kind, name)
        return str(value) if isinstance(kind, GraphQLEnumType) else json.dumps(value)

    def _json(self, kind: Any, name: str) -> Any:
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        elif self.draw.random() < 0.08:
            return None
        if self.draw.random() < 0.02:
            return self.draw.choice(WRONG)
        if isinstance(kind, GraphQLList):
            if self.draw.random() < 0.2:
                return self._json(kind.of_type, name)
            return [self._json(kind.of_type, name) for _ in range(self.draw.randint(0, 3))]
        if isinstance(kind, GraphQLInputObjectType):
            return {n: self._json(f.type, n) for n, f in kind.fields.items() if self._is_given(f)}
        return self._leaf(kind, name)

    def _is_given(self, definition: Any) -> bool:
        return _is_required(definition) or self.draw.random() < 0.4

    def _leaf(self, kind: Any, name: str) -> Any:
        if isinstance(kind, GraphQLEnumType):
            return self.draw.choice(list(kind.values))
        pool = self.pools.get(name)
        if pool is not None and self.draw.random() < 0.85:
            return self.draw.choice(pool)
        if kind.name == "Boolean":
            return self.draw.choice([True, False])
        if kind.name in ("Int", "Long"):
            return self.draw.choice([0, 1, 2, 20, -1, 1_001])
        if kind.name == "Float":
            return self.draw.choice([0.5, 3, -1e10])
        return self.draw.choice(TEXTS)


def _is_leaf(chosen: GraphQLField) -> bool:
    return is_leaf_type(get_named_type(chosen.type))


def _is_required(definition: Any) -> bool:
    has_default = definition.default is not None or definition.default_value is not Undefined
    return isinstance(definition.type, GraphQLNonNull) and not has_default
