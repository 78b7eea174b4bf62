"""A schema with everything that a plan must or must not understand, and resolvers that return anything at all: what the
schema says, what it does not say, and exceptions, at any depth. The same seed returns the same.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    build_schema,
)

from watchword.http.graphql.completers import Reader

_FIELDS = """
  thing(id: ID, kind: Kind = A, input: Given): Thing
  things(count: Int! = 3, tags: [String!], nested: [[Int]], inputs: [Given!]): [Thing!]
  some(deep: Deep, any: JSON, ratio: Float): [Thing]
  must(id: ID!): Thing!
  row: Row
  rows: [Row!]
  node: Node
  word: String
  number: Int
  real: Float
  flag: Boolean
  long: Long
  kind: Kind
  anything: JSON
  words: [String!]
"""
_SDL = f"""
scalar Long
scalar JSON
enum Kind {{ A B C }}
input Given {{ name: String! = "given" count: Int kinds: [Kind!] flag: Boolean! inner: Inner list: [Inner] }}
input Inner {{ id: ID ratio: Float long: Long words: [String!] }}
input Deep {{ name: String deeper: Deep }}
interface Node {{ id: ID! }}
type Thing implements Node {{
  id: ID! name: String count: Int! ratio: Float flag: Boolean! long: Long kind: Kind kinds: [Kind!] words: [String]
  self: Thing others: [Thing!]! some: [Thing] matrix: [[Int!]!] row: Row rows: [Row] called(x: Int): String
}}
type Row {{ word: String! number: Int kind: Kind! thing: Thing names: [String!]! }}
type Query {{ {_FIELDS} }}
type Mutation {{ {_FIELDS} }}
"""


# Values that a scalar takes or refuses by a hair.
_NEAR: dict[str, list[Any]] = {
    "Int": [2**31, -(2**31) - 1, 5.0, 5.5, True, "5"],
    "Long": [2**63, -(2**63) - 1, 5.0, True],
    "Float": [float("nan"), float("inf"), "0.5", True, 2**2000],
    "String": [5, 5.0, True, b"word"],
    "ID": [5, 5.0, True],
    "Boolean": [1, 0.0, "true"],
    "Kind": ["D", "a", 0],
}


class Row:
    """What is shown by readers."""

    def __init__(self, **parts: Any) -> None:
        self.word = parts["word"]
        self.numbers = self
        self.number = parts["number"]
        self.kind = parts["kind"]
        self.thing = parts["thing"]
        self.names = parts["names"]


def projected(value: Any, fields: frozenset[str] | None) -> Any:
    """The value with projections in place of rows, as a resolver may return it for the fields that are read."""
    if fields is None:
        return value
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([projected(one, fields) for one in value])
    if value.__class__ is dict:
        return {name: projected(one, fields) for name, one in value.items()}
    if value.__class__ is not Row:
        return value
    projection: Any = type("PartialRow", (), {"__slots__": tuple(fields), "projection_of": Row})()
    for name in fields:
        one = getattr(value, name)
        setattr(projection, name, one if one is value else projected(one, fields))
    return projection


class Later:
    """A value that is yet to be awaited."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return self.value


@dataclass(slots=True)
class World:
    seed: int
    clean: bool
    """Whether everything is as the schema says."""
    nearly: bool
    """Whether what is not, is a scalar."""
    pauses: bool
    told: list[Any] = field(default_factory=list)
    """What was called, with what."""

    async def resolve(self, kind: Any, name: str, given: dict[str, Any]) -> Any:
        self.told.append((name, given))
        draw = Random(f"{self.seed}/{name}/{given}")
        for _ in range(draw.choice([0, 0, 1, 2]) if self.pauses else 0):
            await asyncio.sleep(0)
        if not (self.clean or self.nearly) and draw.random() < 0.25:
            raise draw.choice([ValueError("no"), GraphQLError("not this"), KeyError("key"), TimeoutError()])
        self.told.append(f"{name} is done")
        return self._value(draw, kind, 3)

    def _value(self, draw: Random, kind: Any, depth: int) -> Any:
        if not self.clean and draw.random() < 0.07:
            return self._odd(draw, kind, depth)
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        elif draw.random() < 0.15:
            return None
        if isinstance(kind, GraphQLList):
            items = [self._value(draw, kind.of_type, depth - 1) for _ in range(draw.randint(0, 3) if depth > 0 else 0)]
            return tuple(items) if draw.random() < 0.2 else items
        if isinstance(kind, GraphQLObjectType):
            parts = {name: self._part(draw, one.type, depth) for name, one in kind.fields.items() if name != "called"}
            return Row(**parts) if kind.name == "Row" else parts
        if isinstance(kind, GraphQLEnumType):
            return draw.choice(list(kind.values))
        leaves: dict[str, list[Any]] = {
            "Int": [0, 7, -(2**31), 2**31 - 1],
            "Long": [0, 2**31, -(2**63), 2**63 - 1],
            "Float": [0.5, 3, -1e300],
            "Boolean": [True, False],
            "JSON": [{"a": [1, None]}, "text", 5, [], False],
        }
        return draw.choice(leaves.get(kind.name, ["", "word", "é😀"]))

    def _part(self, draw: Random, kind: Any, depth: int) -> Any:
        nullable = not isinstance(kind, GraphQLNonNull)
        return None if depth <= 0 and nullable else self._value(draw, kind, depth - 1)

    def _odd(self, draw: Random, kind: Any, depth: int) -> Any:
        plain = self._value(draw, kind, 0)
        near = _NEAR.get(str(kind).rstrip("!"))
        if self.nearly or (near is not None and draw.random() < 0.5):
            return draw.choice(near or [plain])
        odd: list[Any] = [
            None,
            5,
            2**31,
            -(2**31) - 1,
            2**64,
            1.5,
            float("nan"),
            "zzz",
            True,
            "5",
            {},
            [],
            {"a"},
            (None,),
            object,
        ]
        odd += [ValueError("returned"), GraphQLError("returned"), Later(plain), lambda _info: plain, iter([plain])]
        return draw.choice(odd) if depth else plain


def make_world_schema() -> GraphQLSchema:
    schema = build_schema(_SDL)
    for kind in (schema.query_type, schema.mutation_type):
        assert kind is not None
        for name, one in kind.fields.items():
            one.resolve = _resolver(name, one.type)
    rows = schema.get_type("Row")
    assert isinstance(rows, GraphQLObjectType)
    rows.fields["word"].resolve = Reader(Row, "word")
    rows.fields["number"].resolve = Reader(Row, "numbers.number")
    rows.fields["thing"].resolve = Reader(Row, "thing")
    rows.fields["kind"].resolve = Reader(Row, lambda row: row.kind, ("kind",))
    rows.fields["names"].resolve = Reader(Row, lambda row: row.names, ("names",))
    return schema


def _resolver(name: str, kind: Any) -> Any:
    async def resolve(_: Any, info: Any, **given: Any) -> Any:
        return projected(await info.context.resolve(kind, name, given), getattr(info, "record_fields", None))

    return resolve
