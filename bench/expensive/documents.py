"""Documents: long, deep, repeated, multiplied; and known ones with expensive execution."""

from collections.abc import Iterator

from bench.expensive.shape import Make, Shape, ask, ask_first, own

_ROW = "urn id name actorUrn ownerUrn createdAt expiresAt"
_EVERY_FIELD = (
    "urn type id name description actorUrn ownerUrn owner { urn type username exists } tokenType status createdAt "
    "expiresAt lastUsedAt useCount lastNetwork revokedAt scopes audience allowedNetworks parentId createdWith replaces "
    "replacedBy replacedAt awaitsFirstUse expiresAtOnceUsed __typename"
)
_SCHEMA = "__schema { types { name fields { name args { name type { name } } type { name kind ofType { name } } } } }"
_OF_TYPE = "__schema { types { fields { type { " + "ofType { " * 14 + "name" + " }" * 14 + " } } } }"
_FIELDS_OF_FIELDS = "__schema { types { fields { type { fields { type { name } } } } } }"
_ME = "{ me { corpUser { urn } } }"
_ON = "on AccessTokenMetadata"


def _each(count: int, text: str) -> str:
    """Repeat the text, with its number in place of #."""
    return " ".join(text.replace("#", str(number)) for number in range(count))


def _tokens(selections: str) -> str:
    return "{ listAccessTokens(input: {count: 1}) { tokens { " + selections + " } } } "


def _input(value: str) -> str:
    return "{ listAccessTokens(input: " + value + ") { total } }"


def _values(values: str) -> str:
    return "{ listEvents(input: {targets: [" + values + "]}) { cursor } }"


def _texts() -> Iterator[tuple[str, str]]:
    yield (
        "20 lists, every field there is",
        "{" + _each(20, f"a#: listAccessTokens(input: {{count: 1}}) {{ tokens {{ {_EVERY_FIELD} }} }}") + "}",
    )
    yield "100 fields more than there are, renamed", _tokens(_each(100, "a#: id"))
    yield "990 fields, renamed", _tokens(_each(990, "a#: id"))
    yield (
        "960 fields of 20 lists, renamed",
        "{"
        + " ".join(
            f"b{n}: listAccessTokens(input: {{count: 1}}) {{ tokens {{ {_each(46, 'a#: id')} }} }}" for n in range(20)
        )
        + "}",
    )
    yield "__typename under 990 names", "{ me { " + _each(990, "a#: __typename") + "} }"
    yield "20 root fields", "{" + _each(20, "a#: me { corpUser { urn } }") + "}"
    yield "700 root fields", "{" + _each(700, "a#: me { __typename }") + "}"
    yield "a field 100 times", _tokens("id " * 100)
    yield "a field 900 times", _tokens("id " * 900)
    yield "a field with fields 45 times", "{ me {" + "corpUser { urn username } " * 45 + "} }"
    yield "900 unknown fields", "{ me {" + _each(900, "x#") + " } }"
    yield "900 unknown fields under one name", "{ me {" + _each(900, "a: x#") + " } }"
    yield "nested 20 deep", "{ " + "me { " * 19 + "a" + " }" * 20
    yield "nested 1,500 deep", "{ a" * 1_500 + " }" * 1_500
    yield "99,000 opening brackets", "[" * 99_000
    yield "a list in a list, 2,000 deep", _input("{filters: " + "[" * 2_000 + "]" * 2_000 + "}")
    yield "an object in an object, 1,000 deep", _input("{a: " * 1_000 + "1" + "}" * 1_000)
    yield "990 values written into it", _values('"a" ' * 990)
    yield "4,900 values written into it", _values('"a" ' * 4_900)
    yield "4,900 values of the wrong type", _values("1 " * 4_900)
    yield "4,900 words where filters belong", _input("{filters: [" + "a " * 4_900 + "]}")
    yield "1,600 arguments", "{ me(" + "a: 1 " * 1_600 + ") { corpUser { urn } } }"
    yield (
        "50 fragments, spread once each",
        _tokens(_each(50, "...f#")) + _each(50, f"fragment f# {_ON} {{ a#: id name }}"),
    )
    yield (
        "49 fragments that all spread each other",
        _tokens("...f0") + " ".join(f"fragment f{n} {_ON} {{ {_each(49, '...f#')} }}" for n in range(49)),
    )
    yield (
        "49 fragments, each with those after it",
        _tokens("...f0")
        + " ".join(f"fragment f{n} {_ON} {{ id {' '.join(f'...f{m}' for m in range(n + 1, 49))} }}" for n in range(49)),
    )
    yield (
        "450 fragments, spread once each",
        _tokens(_each(450, "...f#")) + _each(450, f"fragment f# {_ON} {{ a#: id }}"),
    )
    yield (
        "a chain of 300 fragments",
        _tokens("...f0") + " ".join(f"fragment f{n} {_ON} {{ ...f{n + 1} id }}" for n in range(300)),
    )
    yield (
        "40 fragments that double",
        _tokens("...f0")
        + " ".join(f"fragment f{n} {_ON} {{ ...f{n + 1} ...f{n + 1} }}" for n in range(40))
        + f" fragment f40 {_ON} {{ id }}",
    )
    yield "a fragment 900 times", _tokens("...f " * 900) + f"fragment f {_ON} {{ id }}"
    yield (
        "a circle of 50 fragments",
        _tokens("...f0") + " ".join(f"fragment f{n} {_ON} {{ ...f{(n + 1) % 50} }}" for n in range(50)),
    )
    yield "90 inline fragments", _tokens(f"... {_ON} {{ id }} " * 90)
    yield "inline fragments, 400 deep", _tokens("... { " * 400 + "id" + " }" * 400)
    yield "600 unknown types", "{ me { __typename } } " + _each(600, "fragment f# on X# { a }")
    yield "49 operations", _each(49, "query q# { me { corpUser { urn } } }")
    yield "600 operations", _each(600, "query q# { me { __typename } }")
    yield "700 definitions of types", _each(700, "type T# { a: Int }")
    yield "100 variables, used", "query (" + _each(100, "$v#: String!") + ")" + _values(_each(100, "$v#"))
    yield "600 variables, used", "query (" + _each(600, "$v#: String!") + ")" + _values(_each(600, "$v#"))
    yield "1,200 variables", "query (" + _each(1_200, "$v#: String") + ")" + _ME
    yield "a type in a type, 1,000 deep", "query ($v: " + "[" * 1_000 + "Int" + "]" * 1_000 + ")" + _ME
    yield "a name of 99,000 letters", "{ " + "x" * 99_000 + " }"
    yield "a field renamed with 98,000 letters", "{ " + "x" * 98_000 + ": me { corpUser { urn } } }"
    yield "a string of 98,000", '{ getAccessToken(id: "' + "x" * 98_000 + '") { id } }'
    yield "a string of 16,000 escapes", '{ getAccessToken(id: "' + "\\u00e9" * 16_000 + '") { id } }'
    yield "a block string of 49,000 lines", '{ getAccessToken(id: """' + "\n " * 49_000 + '""") { id } }'
    yield "a number of 98,000 digits", _input("{start: " + "9" * 98_000 + "}")
    yield "a fraction of 98,000 digits", _input("{start: 0." + "9" * 98_000 + "}")
    yield "98,000 commas", "{ me " + "," * 98_000 + " { corpUser { urn } } }"
    yield "4,900 empty comments", "#\n" * 4_900 + _ME
    yield "49,000 empty comments", "#\n" * 49_000 + _ME
    yield "a comment of 98,000", "#" + "x" * 98_000 + "\n" + _ME
    yield "99,000 blanks", " " * 99_000
    yield "100 directives", _tokens(_each(96, "a#: id @skip(if: true)"))
    yield "480 directives", _tokens(_each(480, "a#: id @skip(if: true)"))
    yield "one directive 800 times", "{ me " + "@include(if: true) " * 800 + "{ corpUser { urn } } }"
    yield "1,200 unknown directives", "{ me " + "@a " * 1_200 + "{ corpUser { urn } } }"
    yield "20 errors after 90,000 lines", "\n" * 90_000 + "{" + _each(20, 'a#: getAccessToken(id: "") { id }') + "}"
    yield "the schema", "{ " + _SCHEMA + " }"
    yield "the schema, twice", "{" + _each(2, f"a#: {_SCHEMA}") + "}"
    yield "the schema, 20 times", "{" + _each(20, f"a#: {_OF_TYPE}") + "}"
    yield "the schema, types of types", "{ " + _OF_TYPE + " }"
    yield "the schema, fields of fields", "{ " + _FIELDS_OF_FIELDS + " }"
    yield "the schema, its types 90 times", "{ __schema { " + _each(90, "a#: types { name fields { name } }") + " } }"


def documents() -> Iterator[Shape]:
    """Each sent as a document that was never seen before."""
    for name, text in _texts():
        yield Shape(name, "first", _first(text))


def _first(text: str) -> Make:
    return lambda c: ask_first(c.root, text)


def executions() -> Iterator[Shape]:
    """Known documents: only their execution costs."""
    lists = (
        "query ($input: ListAccessTokensInput) {"
        + _each(20, f"a#: listAccessTokens(input: $input) {{ total tokens {{ {_ROW} }} }}")
        + "}"
    )
    renamed = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { tokens { " + _EVERY_FIELD
    renamed += _each(90, " a#: id") + " } } }"
    mutations = "mutation {" + _each(20, f'a#: revokeAccessToken(tokenId: "{"A" * 43}=")') + "}"
    lookups = "{" + _each(20, f'a#: getAccessTokenMetadata(token: "{"x" * 4_000}") {{ id }}') + "}"
    late = "\n" * 90_000 + "{" + _each(20, 'a#: getAccessToken(id: "") { id }') + "}"
    yield Shape("known: 20 lists of 20 rows", "page", lambda c: ask(c.root, lists, {"input": {"count": 20}}))
    yield Shape("known: 20 lists of 1,000 rows", "page", lambda c: ask(c.root, lists, {"input": {"count": 1_000}}))
    yield Shape("known: one's own 20, 120 fields each", "list", lambda c: ask(c.plain, renamed, own(c.plain)))
    yield Shape(
        "known: 1,000 rows, 120 fields each", "page", lambda c: ask(c.root, renamed, {"input": {"count": 1_000}})
    )
    yield Shape("known: the schema", "first", lambda c: ask(c.plain, "{ " + _SCHEMA + " }"))
    yield Shape("known: the schema, fields of fields", "first", lambda c: ask(c.plain, "{ " + _FIELDS_OF_FIELDS + " }"))
    yield Shape("known: 20 mutations that find nothing", "list", lambda c: ask(c.plain, mutations))
    yield Shape("known: 20 lookups of tokens of 4,000", "list", lambda c: ask(c.plain, lookups))
    yield Shape("known: 20 errors after 90,000 lines", "list", lambda c: ask(c.plain, late))
