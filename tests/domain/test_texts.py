"""Which characters every store accepts."""

import sys
import unicodedata

from watchword.basics.errors import Fault
from watchword.basics.names import check_text


def is_accepted(character: str) -> bool:
    try:
        check_text(character, "name", 1)
    except Fault:
        return False
    return True


def test_only_control_characters_and_lone_surrogates_are_rejected() -> None:
    refused = {chr(code) for code in range(sys.maxunicode + 1) if not is_accepted(chr(code))}
    expected = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Cc", "Cs")}
    assert refused == expected - {"\t", "\n", "\r"}
