"""graphql-core words its messages as `documents.py` expects. A new version that words one differently fails here."""

import pytest
from graphql import ExecutionResult, build_schema, execute, parse, validate

from watchword.basics.errors import Fault
from watchword.http.graphql.documents import Documents, InvalidDocument, explain

SCHEMA = build_schema(
    """
    enum Color { RED GREEN }
    input Pick { color: Color }
    type Query { paint(color: Color, pick: Pick): String }
    """
)
COLORS, PICKS, FIELDS, ARGUMENTS = "RED, GREEN", "color", "paint", "color, pick"


def message_for(text: str) -> str:
    with pytest.raises(InvalidDocument) as invalid:
        Documents(SCHEMA).get(text)
    (error,) = invalid.value.errors
    return explain(error.message, SCHEMA)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("{ paint(color: BLUE) }", COLORS),
        ('{ paint(color: "RED") }', COLORS),
        ("{ paint(pick: {size: 1}) }", PICKS),
        ("{ brush }", FIELDS),
        ("{ paint(size: 1) }", ARGUMENTS),
    ],
)
def test_invalid_document_gets_the_allowed_names(text: str, allowed: str) -> None:
    assert message_for(text).endswith(f" Allowed: {allowed}.")


@pytest.mark.parametrize(
    ("kind", "value", "allowed"),
    [("Color", "BLUE", COLORS), ("Color", 1, COLORS), ("Pick", {"size": 1}, PICKS)],
)
def test_invalid_variable_gets_the_allowed_names(kind: str, value: object, allowed: str) -> None:
    document = parse(f"query ($v: {kind}) {{ paint({kind.lower()}: $v) }}")
    assert not validate(SCHEMA, document)
    found = execute(SCHEMA, document, variable_values={"v": value}, hide_suggestions=True)
    assert isinstance(found, ExecutionResult)
    assert found.errors
    (error,) = found.errors
    assert explain(error.message, SCHEMA).endswith(f" Allowed: {allowed}.")


def test_message_does_not_repeat_the_value() -> None:
    document = parse("query ($v: Pick) { paint(pick: $v) }")
    found = execute(SCHEMA, document, variable_values={"v": ["secret", {"size": "secret"}]}, hide_suggestions=True)
    assert isinstance(found, ExecutionResult)
    assert found.errors
    assert all("secret" in error.message for error in found.errors)
    assert not any("secret" in explain(error.message, SCHEMA) for error in found.errors)


@pytest.mark.parametrize("text", ["{ paint ", "{ paint }}", "{ brush }"])
def test_other_invalid_documents_are_not_too_complex(text: str) -> None:
    with pytest.raises(InvalidDocument):
        Documents(SCHEMA).get(text)


@pytest.mark.parametrize(
    "text",
    [
        "{ paint " + "paint " * 6_000 + "}",
        "{a" * 10_000 + "}" * 10_000,
    ],
)
def test_document_that_is_too_long_or_deep_to_parse_is_too_complex(text: str) -> None:
    with pytest.raises(Fault, match=r"lexical tokens|nested too deeply"):
        Documents(SCHEMA).get(text)


def test_validation_beyond_its_budget_is_too_complex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphql.validation.rules.overlapping_fields_can_be_merged.MAX_COMPLEXITY_BUDGET", 1)
    with pytest.raises(Fault, match="repeat a field"):
        Documents(SCHEMA).get("{ " + "paint(color: RED) " * 20 + "}")
