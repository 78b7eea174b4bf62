"""Requirements in a query are found by one regular expression; compare it with parsing each parameter."""

from urllib.parse import unquote_to_bytes

from hypothesis import given, settings
from hypothesis import strategies as st

from watchword.tokens.verify_http import Requirement, parse_requirements

PIECES = ["watchword.", "WatchWord.", "%77atchword.", "watchword%2E", "watchword%2escope", "w%61tchword.", "%57", "%"]
PIECES += ["scope", "=", "&", "&&", "a", "w", "W", "+", "%20", ".", "privilege", "é", "\n", "%0a", "watchword", "77"]
queries = st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=12).map("".join)


def parse_each_parameter(query: str) -> list[Requirement]:
    found = []
    for pair in query.encode().split(b"&"):
        name, _, value = pair.partition(b"=")
        name = unquote_to_bytes(name).lower()
        if name.startswith(b"watchword."):
            word = unquote_to_bytes(value.replace(b"+", b" ")).decode("utf-8", "replace")
            found.append(Requirement(name[10:].decode("utf-8", "replace"), word))
    return found


@settings(max_examples=300, deadline=None)
@given(queries)
def test_requirements_equal_parsing_each_parameter(query: str) -> None:
    assert parse_requirements(query) == parse_each_parameter(query)
