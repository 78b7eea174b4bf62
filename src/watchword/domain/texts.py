"""Validation of names, descriptions and other text input."""

import re
import unicodedata

from watchword.domain.errors import invalid

MAX_NAME = 200
MAX_DESCRIPTION = 1_000
# Bidirectional marks can make one name look like another.
_BIDI_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Characters that control a terminal or the text direction and that JSON and YAML print unescaped.
ACTING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

# Control characters except tab, line feed and carriage return; lone surrogates.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def check_name(value: str, field: str = "name") -> str:
    check_text(value, field, MAX_NAME)
    if not any(unicodedata.category(character)[0] in "LMNPS" for character in value):
        raise invalid(field, f"{field} must have 1 to {MAX_NAME} characters, at least one of them visible.")
    if any(character in "\n\r\t\u2028\u2029" or character in _BIDI_MARKS for character in value):
        raise invalid(field, f"{field} must be one line, without bidirectional control characters.")
    return value


def check_description(value: str | None, field: str = "description") -> str | None:
    return None if value is None else check_text(value, field, MAX_DESCRIPTION)


def check_text(value: str, field: str, longest: int) -> str:
    """Text that both databases store unchanged."""
    if len(value) > longest:
        raise invalid(field, f"{field} must have at most {longest:,} characters.")
    if _FORBIDDEN.search(value):
        raise invalid(field, f"{field} must not contain control characters or lone surrogates.")
    return value
