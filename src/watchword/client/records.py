"""How a record's fields determine what a request selects and how the answer is read. The records of GraphQL types are
in `answers.py`; others are here.

A record's fields are those of the GraphQL type, in snake case.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

from watchword.basics.scopes import covering, is_scope
from watchword.basics.secret import Secret

Json = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OLDEST, _NEWEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
GRAPHQL_NAME = "graphql"
"""Metadata key: the field's name in GraphQL, where that is not the camel case of its Python name."""


def from_millis(milliseconds: int) -> datetime:
    """Exact, unlike a float of seconds. Times outside the years 1 to 9999 are clamped to them."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return _OLDEST if milliseconds < 0 else _NEWEST


def to_millis(argument: str, when: datetime) -> int:
    """Milliseconds since 1970. Without a time zone a datetime could mean any of 24 hours."""
    if not isinstance(when, datetime):
        raise TypeError(f"{argument} must be a datetime with a time zone.")
    if when.tzinfo is None:
        raise ValueError(f"{argument} must have a time zone, such as datetime(2026, 10, 1, tzinfo=UTC).")
    return (when - _EPOCH) // _MILLISECOND


def graphql_name(field: Field[Any]) -> str:
    """The camel case of a field's name, unless its metadata names it."""
    return field.metadata.get(GRAPHQL_NAME) or camel_case(field.name)


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """The base of all records: makes each a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class ServerInfo(Record):
    """The version of a server and what it can do."""

    version: str
    capabilities: tuple[str, ...]


class PolicyActors(Record):
    """To whom a policy grants its privileges and scopes."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    all_users: bool = False


class VerifiedToken(Record):
    """Whose token it is and which scopes it has now, as a gateway gets it."""

    urn: str
    token_id: str
    scopes: tuple[str, ...]

    def has_scope(self, scope: str) -> bool:
        """Whether the scopes name it or have a wildcard that covers it, such as orders:* for orders:read."""
        return is_scope(scope) and covering(self.scopes, scope) is not None


class DeviceLogin(Record):
    """A device authorization (RFC 8628) that waits for a person to approve it in a browser."""

    device_code: Secret[str]
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    """Seconds until both codes expire."""
    interval: float
    """Seconds to wait between polls."""


def read_identity(headers: Mapping[str, str]) -> VerifiedToken:
    """Read the headers with which the server confirms a token."""
    return VerifiedToken(headers["x-auth-urn"], headers["x-auth-token-id"], tuple(headers["x-auth-scopes"].split()))


def read_device_login(found: Json) -> DeviceLogin:
    return DeviceLogin(
        device_code=Secret(str(found["device_code"])),
        user_code=str(found["user_code"]),
        verification_uri=str(found["verification_uri"]),
        verification_uri_complete=str(found["verification_uri_complete"]),
        expires_in=float(found["expires_in"]),
        interval=float(found["interval"]),
    )


class TaskProgress:
    updated: int
    created: int
    deleted: int
    noops: int
    version_conflicts: int

    @property
    def done(self) -> int:
        """Rows processed so far."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts


class TaskFailure:
    error: str | None
    failures: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether it failed, or some rows did."""
        return self.error is not None or bool(self.failures)


class OperationEnd:
    state: str

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.state in {"DONE", "FAILED", "CANCELLED"}


class TokenClaims(Record):
    """The lifetime that a token states about itself. Only the server can verify it."""

    issued_at: datetime
    expires_at: datetime | None

    def elapsed_share(self) -> float:
        """0.0 for a token that never expires, 1.0 or more for one that has expired."""
        if self.expires_at is None:
            return 0.0
        whole = max(self.expires_at - self.issued_at, timedelta(seconds=1))
        return (datetime.now(UTC) - self.issued_at) / whole


def read_claims(token: Secret[str]) -> TokenClaims | None:
    """None for text that is not a token of Watchword's form."""
    try:
        _, claims, _ = token.reveal().split(".")
        found = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        issued, expires = found["iat"], found.get("exp")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(issued, int) or not isinstance(expires, int | None):
        return None
    return TokenClaims(from_millis(issued * 1000), None if expires is None else from_millis(expires * 1000))


R = TypeVar("R", bound=Record)
# How values that are no records are read from JSON. Other types are taken as they are.
_READERS: Mapping[Any, Callable[[Any], Any]] = {
    datetime: from_millis,
    timedelta: lambda millis: timedelta(milliseconds=millis),
    Secret: Secret,
}


@cache
def _graphql_fields(kind: type[Record]) -> tuple[tuple[str, str, Any], ...]:
    """Each field's name in Python and in GraphQL, and its type: a record, one of _READERS, or None for others."""
    hints = get_type_hints(kind)

    def converted(hint: Any) -> Any:
        if hint is None or hint in _READERS or is_dataclass(hint):
            return hint
        return next(filter(None, map(converted, (get_origin(hint), *get_args(hint)))), None)

    return tuple((one.name, graphql_name(one), converted(hints[one.name])) for one in fields(kind))


def selection(kind: type[Record]) -> str:
    """The GraphQL selection of a record's fields."""
    return " ".join(
        name if inner is None or inner in _READERS else f"{name} {{ {selection(inner)} }}"
        for _, name, inner in _graphql_fields(cast("Any", kind))
    )


def record(kind: type[R], answer: Json) -> R:
    """Read a record from the JSON of an answer."""
    found = _graphql_fields(cast("Any", kind))
    return kind(**{name: _read_value(inner, answer[graphql]) for name, graphql, inner in found})


def _read_value(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(kind, one) for one in value)
    if kind is None or value is None:
        return value
    reader = _READERS.get(kind)
    return record(kind, value) if reader is None else reader(value)
