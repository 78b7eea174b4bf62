"""Urns of actors, groups, policies and tokens.

An actor is any well-formed `urn:<namespace>:<rest>` of visible ASCII, at most 255 characters, that is not the
urn of a group, role, policy or token, and whose last part does not begin with `__` (reserved for the system).
Actors need no registration.
"""

import re

from watchword.domain.errors import invalid

MAX_LENGTH = 255
TOKEN_PREFIX = "urn:li:serviceAccessToken:"  # noqa: S105 - a name, not a password
POLICY_PREFIX = "urn:li:servicePolicy:"
GROUP_PREFIX = "urn:li:corpGroup:"
SYSTEM_ACTOR = "urn:li:corpuser:__system"
UNKNOWN_ACTOR = "urn:li:corpuser:__unknown"

_URN = re.compile(r"urn:[A-Za-z0-9][A-Za-z0-9-]{0,31}:[\x21-\x7e]+", re.ASCII)
_SHORT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_NOT_ACTORS = frozenset(
    {
        "corpgroup", "group", "role", "policy", "token", "accesstoken",
        "servicerole", "servicepolicy", "serviceaccesstoken", "servicegroup",
        "datahubrole", "datahubpolicy", "datahubaccesstoken",
    }
)  # fmt: skip


def check_urn(value: str, field: str) -> str:
    if len(value) > MAX_LENGTH or not _URN.fullmatch(value):
        raise invalid(
            field, f"{field} must be a urn: urn:<namespace>:<rest>, visible ASCII, at most {MAX_LENGTH} characters."
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


def check_short_id(value: str, field: str) -> str:
    """The last part of a group's or policy's urn, as a caller gives it."""
    if not _SHORT_ID.fullmatch(value):
        raise invalid(field, f"{field} must have 1 to 100 letters, digits, dots, hyphens or underscores.")
    return value


def is_reserved(urn: str) -> bool:
    return name_of(urn).startswith("__")


def name_of(urn: str) -> str:
    """The part after the last colon."""
    return urn.rpartition(":")[2]


def token_urn(token_id: str) -> str:
    return TOKEN_PREFIX + token_id


def _kind(urn: str) -> str:
    """The entity type, `corpuser` in `urn:li:corpuser:alice`; empty where the urn has none."""
    parts = urn.split(":", 3)
    return parts[2].lower() if len(parts) == 4 else ""
