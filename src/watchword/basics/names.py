"""Names, descriptions and urns: what is valid in text that callers give, and what of an actor is shown next to its urn.

An actor is any well-formed `urn:<namespace>:<rest>` of visible ASCII, at most 255 characters, that is not the
urn of a group, role, policy or token, and whose last part does not begin with `__` (reserved for the system).
Actors need no registration.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from watchword.basics.errors import Fault, Reason, invalid

DEFAULT_URL = "http://127.0.0.1:8080"
"""Where a server listens, and commands and clients look for it, unless told otherwise."""
MAX_NAME = 200
MAX_DESCRIPTION = 1_000
MAX_EMAIL = 254
# Bidirectional marks can make one name look like another.
_BIDI_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Letters and symbols that show nothing.
_BLANK_SYMBOLS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# Characters that control a terminal or the text direction and that JSON and YAML print unescaped.
ACTING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
TOKEN_DOT = r"(?:\.|%(?:25)*2[Ee])"  # noqa: S105 - a pattern, not a password
"""Between two parts of a token: a dot, or one that was percent-encoded once or several times."""
SHOWN_TOKEN = re.compile(rf"eyJ[\w-]{{10,}}(?:{TOKEN_DOT}[\w-]*)*", re.ASCII)
"""A token, whole or cut off, in text that is printed or mailed."""
# A signed JWT. The shortest signature, that of DataHub's tokens, has 43 characters. It matches only from the start of a
# word, so its time is linear in the text.
_WORD = "[A-Za-z0-9_-]"
_TOKEN = re.compile(rf"(?<!{_WORD}){_WORD}{{11,}}+{TOKEN_DOT}eyJ{_WORD}{{8,}}+{TOKEN_DOT}{_WORD}{{43}}")
# Control characters except tab, line feed and carriage return; lone surrogates.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
MAX_URN = 255
TOKEN_PREFIX = "urn:li:serviceAccessToken:"  # noqa: S105 - a name, not a password
DATAHUB_TOKEN_PREFIX = "urn:li:dataHubAccessToken:"  # noqa: S105 - the same
POLICY_PREFIX = "urn:li:servicePolicy:"
DATAHUB_POLICY_PREFIX = "urn:li:dataHubPolicy:"
GROUP_PREFIX = "urn:li:corpGroup:"
USER_PREFIX = "urn:li:corpuser:"
ACCOUNT_PREFIX = USER_PREFIX + "service_"
"""Of service accounts. The form is reserved, so the privilege decides before a caller can learn whether one exists."""
SYSTEM_ACTOR = "urn:li:corpuser:__system"
UNKNOWN_ACTOR = "urn:li:corpuser:__unknown"
_URN = re.compile(r"urn:[A-Za-z0-9][A-Za-z0-9-]{0,31}:[\x21-\x7e]+", re.ASCII)
# Not all of RFC 5322: one @, and no character that quotes, lists or hides an address.
_EMAIL = re.compile(r'[^\s@<>()\[\],;:"\\]{1,64}@[^\s@<>()\[\],;:"\\]+')
_LOWER_ID = re.compile(r"[a-z0-9-]{1,60}", re.ASCII)
_SHORT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_NOT_ACTORS = frozenset(
    {
        "corpgroup", "group", "role", "policy", "token", "accesstoken",
        "servicerole", "servicepolicy", "serviceaccesstoken", "servicegroup",
        "datahubrole", "datahubpolicy", "datahubaccesstoken",
    }
)  # fmt: skip


def check_name(value: str, field: str = "name") -> str:
    check_text(value, field, MAX_NAME)
    if not any(unicodedata.category(one)[0] in "LMNPS" and one not in _BLANK_SYMBOLS for one in value):
        raise invalid(field, f"{field} must have 1 to {MAX_NAME} characters, at least one of them visible.")
    if any(character in "\n\r\t\u2028\u2029" or character in _BIDI_MARKS for character in value):
        raise invalid(field, f"{field} must be one line, without bidirectional control characters.")
    return check_no_token(value, field)


def check_description(value: str | None, field: str = "description") -> str | None:
    return None if value is None else check_no_token(check_text(value, field, MAX_DESCRIPTION), field)


def check_no_token(value: str, field: str) -> str:
    """Text that is stored and shown in lists."""
    if contains_token(value):
        raise invalid(field, f"{field} must not contain a token.")
    return value


def contains_token(text: str) -> bool:
    """Whether it contains a whole token, in one line or wrapped."""
    return "eyJ" in text and _TOKEN.search("".join(line.strip() for line in text.splitlines())) is not None


def check_email(value: str, field: str = "email") -> str:
    check_text(value, field, MAX_EMAIL)
    if not _EMAIL.fullmatch(value) or not _BIDI_MARKS.isdisjoint(value):
        raise invalid(field, f"{field} must be an e-mail address such as alice@example.com.")
    return value


def check_text(value: str, field: str, longest: int) -> str:
    """Text that both databases store unchanged."""
    if len(value) > longest:
        raise invalid(field, f"{field} must have at most {longest:,} characters.")
    if _FORBIDDEN.search(value):
        raise invalid(field, f"{field} must not contain control characters or lone surrogates.")
    return value


def check_urn(value: str, field: str) -> str:
    if len(value) > MAX_URN or not _URN.fullmatch(value):
        raise invalid(
            field, f"{field} must be a urn: urn:<namespace>:<rest>, visible ASCII, at most {MAX_URN} characters."
        )
    return value


def check_actor(value: str, field: str) -> str:
    """The urn of an actor that a token may act as."""
    check_urn(value, field)
    if _kind(value) in _NOT_ACTORS:
        raise invalid(field, f"{field} must be the urn of a user, not of a group, role, policy or token.")
    if is_reserved(value):
        raise invalid(field, f"{field} must not name a system actor (names beginning with __ are reserved).")
    return value


def check_group(value: str, field: str) -> str:
    check_urn(value, field)
    if not value.startswith(GROUP_PREFIX) or len(value) == len(GROUP_PREFIX):
        raise invalid(field, f"{field} must be the urn of a group: {GROUP_PREFIX}<name>.")
    return value


def is_account(urn: str) -> bool:
    return urn.startswith(ACCOUNT_PREFIX) and _LOWER_ID.fullmatch(urn, len(ACCOUNT_PREFIX)) is not None


def check_lower_id(value: str, field: str) -> str:
    """The last part of a service account's urn, or the id of a webhook."""
    if not _LOWER_ID.fullmatch(value):
        raise invalid(field, f"{field} must have 1 to 60 lower-case letters, digits or hyphens.")
    return value


def check_account(urn: str, field: str) -> str:
    if not is_account(urn):
        raise invalid(field, f"{field} must be the urn of a service account: {ACCOUNT_PREFIX}<id>.")
    return urn


def check_short_id(value: str, field: str, name: str = "") -> str:
    """The last part of a group's or policy's urn, as a caller gives it; `name` is how the message calls it."""
    if not _SHORT_ID.fullmatch(value):
        raise invalid(field, f"{name or field} must have 1 to 100 letters, digits, dots, hyphens or underscores.")
    return value


def policy_urn(urn: str) -> str:
    """The urn of a policy here. DataHub's clients name the same policy by DataHub's prefix."""
    if not urn.startswith(DATAHUB_POLICY_PREFIX):
        return urn
    return POLICY_PREFIX + urn.removeprefix(DATAHUB_POLICY_PREFIX)


def is_reserved(urn: str) -> bool:
    return name_of(urn).startswith("__")


def name_of(urn: str) -> str:
    """The part after the last colon. Several urns may have it: to identify an actor, see `username_of`."""
    return urn.rpartition(":")[2]


def username_of(urn: str) -> str:
    """`alice` of `urn:li:corpuser:alice`, and any other urn as it is: no two actors have the same."""
    name = urn.removeprefix(USER_PREFIX)
    return name if name and ":" not in name else urn


def token_urn(token_id: str) -> str:
    return TOKEN_PREFIX + token_id


def own_token_urn(urn: str) -> str:
    """The urn of a token of DataHub as this service has it; any other text unchanged."""
    bare = urn.removeprefix(DATAHUB_TOKEN_PREFIX)
    return urn if bare == urn else TOKEN_PREFIX + bare


def did_you_mean(word: str, known: Iterable[str], least: float = 0.6) -> str:
    """The question after an error, for a misspelt word: which one is close. Empty if none is."""
    from difflib import get_close_matches

    close = get_close_matches(word[:100], known, 1, least)
    return f" Did you mean {close[0]}?" if close else ""


def _kind(urn: str) -> str:
    """The entity type, `corpuser` in `urn:li:corpuser:alice`; empty where the urn has none."""
    parts = urn.split(":", 3)
    return parts[2].lower() if len(parts) == 4 else ""


class ShownActor(NamedTuple):
    """None: the actor has none, or the caller may not see it."""

    name: str | None = None
    email: str | None = None
    suspended: bool | None = None


NOTHING_STORED = ShownActor(suspended=False)
"""An actor of whom nothing is stored."""


def no_account() -> Fault:
    return Fault(Reason.ACCOUNT_NOT_FOUND, "There is no service account with this urn.")
