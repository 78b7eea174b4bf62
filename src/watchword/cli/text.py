"""Text that came from elsewhere, made harmless: nothing in it acts on the terminal or passes for something else."""

import re
from typing import Any

from watchword.domain.texts import ACTING

# Controls, and what breaks lines or turns the direction of writing.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_TOKEN = re.compile(r"eyJ[\w-]{10,}[\w.-]*", re.ASCII)


def one_line(text: str) -> str:
    """The text with everything that acts shown as an escape."""
    return _ACTING.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def without_tokens(text: str) -> str:
    """Whoever puts a token in the wrong place need not find it in a log as well."""
    return _TOKEN.sub("…", text)


def as_json(value: Any) -> str:
    """JSON that reads as it is and is harmless on a terminal; JSON itself escapes the rest."""
    import json

    return ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
