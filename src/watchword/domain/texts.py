"""Texts that people give: names and descriptions, bounded, and the same in every store."""

import re
import unicodedata

from watchword.domain.errors import invalid

MAX_NAME = 200
MAX_DESCRIPTION = 1_000
# With these a name can be made to look like another.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# What acts on a terminal or turns the direction of writing, of all that JSON and YAML would print as it is.
ACTING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

# All control characters but tab, line feed and carriage return; half a pair of UTF-16.
_UNKEPT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def check_name(value: str, field: str = "name") -> str:
    check_text(value, field, MAX_NAME)
    if not any(unicodedata.category(character)[0] in "LMNPS" for character in value):
        raise invalid(field, f"{field} must have 1 to {MAX_NAME} characters, not all of them blank.")
    if any(character in "\n\r\t\u2028\u2029" or character in _TURNING for character in value):
        raise invalid(field, f"{field} must be one line, without marks that turn the direction of writing.")
    return value


def check_description(value: str | None, field: str = "description") -> str | None:
    return None if value is None else check_text(value, field, MAX_DESCRIPTION)


def check_text(value: str, field: str, longest: int) -> str:
    """Text that every store keeps as it is: bounded, without control characters or lone surrogates."""
    if len(value) > longest:
        raise invalid(field, f"{field} must have at most {longest:,} characters.")
    if _UNKEPT.search(value):
        raise invalid(field, f"{field} must not contain control characters or lone surrogates.")
    return value
