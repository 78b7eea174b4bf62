"""Columns and rows that several modules read or write, the same in both databases. JSON is stored as text."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import orjson

from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.policies import Policy, PolicySource, PolicyState, Privilege
from watchword.domain.stores import LastStart
from watchword.domain.token_limits import unpacked
from watchword.domain.tokens import TokenRecord, TokenType

ACCOUNT = "urn, name, description, created_at, created_by, deleted_at, set_name"
SESSION = "id, actor_urn, token_id, created_at, ends_at, seen_at, peer, issuer, subject, sid"
RETRY = "actor, digest, kid, token_id, created_at, expires_at"
POLICY = "urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name"
GROUP = "urn, name, description, members, set_name"
RESOURCE = "name, id, set_name"
ACTOR = "urn, status, changed_at, changed_by, display_name, email"
EVENT = "at, actor, bearer_id, action, target, peer, request_id, detail"

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "type": {kind.value: kind for kind in TokenType}.__getitem__,
    "limits": unpacked,
}

# Fields of a token that are looked up elsewhere, as the last ones of its record.
_NOT_STORED = {
    "suspended": "false",
    **dict.fromkeys(("actor_name", "owner_name", "owner", "uses", "networks"), "NULL"),
}

Row = Sequence[Any]


def columns(table: str, names: str) -> str:
    """The columns with the name of their table, for a join."""
    return ", ".join(f"{table}.{name}" for name in names.split(", "))


def insert(table: str, names: str) -> str:
    """The statement that adds a row with these columns."""
    parameters = ", ".join(f"${number}" for number, _ in enumerate(names.split(", "), 1))
    return f"INSERT INTO {table} ({names}) VALUES ({parameters})"


def put(table: str, names: str, key: str, changed: str | None = None) -> str:
    """The same. Of a row that has this key already, it changes the other columns, or just these."""
    others = (changed or names.removeprefix(f"{key}, ")).split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{insert(table, names)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


@lru_cache(64)
def token_reader(wanted: frozenset[str] | None) -> tuple[str, Callable[[Row], TokenRecord]]:
    """The columns to select, and the function that turns a row into a record. With `wanted` the record has only these
    fields and its id: that halves the cost of a long list. To read another field is an AttributeError.
    """
    fields = [name for name in TokenRecord._fields if wanted is None or name in wanted or name == "id"]
    record: type[TokenRecord] = TokenRecord
    if wanted is not None:
        make_class: Any = namedtuple  # noqa: PYI024 - its fields are known only here
        partial_record = make_class("PartialTokenRecord", fields)
        partial_record.status = TokenRecord.status
        partial_record.effective_status = TokenRecord.effective_status
        partial_record.projection_of = TokenRecord
        record = partial_record
    read = [(fields.index(name), convert) for name, convert in _CONVERTERS.items() if name in fields]

    def make(row: Row) -> TokenRecord:
        values = list(row)
        for index, convert in read:
            values[index] = convert(values[index])
        return record._make(values)

    columns = ", ".join(_NOT_STORED.get(name, name) for name in fields)
    # A row without columns to convert needs no Python code.
    return columns, make if read else partial(tuple.__new__, record)


TOKEN, token_of = token_reader(None)
TOKEN_COLUMNS = TOKEN.removesuffix(f", {', '.join(_NOT_STORED.values())}")

INSERTED = (
    "id, type, name, description, actor_urn, owner_urn, created_at, expires_at, created_with, limits, parent, root,"
    " replaces, grace, full_end"
)
_new_values = attrgetter(*INSERTED.split(", "))


def token_values(record: TokenRecord) -> tuple[Any, ...]:
    """The values of INSERTED. A new token was neither used nor revoked."""
    token_id, kind, *text, limits, parent, root, replaces, grace, full_end = _new_values(record)
    return (token_id, kind.value, *text, limits.packed(), parent, root, replaces, grace, full_end)


def created(record: TokenRecord) -> Event:
    detail: dict[str, Detail] = {"name": record.name, "actorUrn": record.actor_urn, "expiresAt": record.expires_at}
    limits = record.limits
    for word, values in (("scopes", limits.scopes), ("audience", limits.audience), ("networks", limits.networks)):
        if values is not None:
            detail[word] = list(values)
    if record.replaces is not None:
        return Event(Action.TOKEN_ROTATED, record.id, {**detail, "replaces": record.replaces})
    if record.parent is not None:
        return Event(Action.TOKEN_DERIVED, record.id, {**detail, "parent": record.parent})
    return Event(Action.TOKEN_CREATED, record.id, detail)


def no_token(to: str = "revoke") -> Fault:
    return Fault(Reason.TOKEN_NOT_FOUND, f"There is no token with this id that you may {to}.")


def already_revoked(at: int) -> Fault:
    return Fault(Reason.ALREADY_REVOKED, "The token is already revoked.", revokedAt=at)


def actor_suspended() -> Fault:
    return Fault(Reason.ACTOR_SUSPENDED, "The actor is suspended. Resume it first.")


def no_room(max_live: int) -> Fault:
    return Fault(Reason.TOO_MANY_TOKENS, f"The actor has {max_live:,} live tokens, the maximum. Revoke some first.")


def stopping() -> Fault:
    return Fault(Reason.STOPPING, "The service is stopping.")


def unknown_outcome(cause: str) -> Fault:
    return Fault(
        Reason.OUTCOME_UNKNOWN,
        "The store did not confirm in time. The change may have been made: check before you retry.",
        cause=cause,
    )


def too_slow() -> Fault:
    return Fault(Reason.DEADLINE, "The search took too long. Filter by actorUrn or ownerUrn, or request fewer rows.")


def policy_of(row: Row) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name = row
    named = frozenset(Privilege[word] for word in orjson.loads(privileges))
    users, groups, scopes = (frozenset(orjson.loads(text)) for text in (users, groups, scopes))
    plain = (urn, name, description, PolicyState(state))
    return Policy(*plain, named, users, groups, bool(all_users), scopes, PolicySource(source), set_name)


def last_start(stored: str | None) -> LastStart | None:
    """The stored settings of the last start, as JSON; None before the first start."""
    settings = orjson.loads(stored) if stored else {}
    return LastStart(settings["issuer"], settings["listensAt"]) if "issuer" in settings else None
