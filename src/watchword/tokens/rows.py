"""Tokens as rows."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

from watchword.authority.limits import LIMITS, unpacked
from watchword.database import rows
from watchword.database.transaction import Transaction
from watchword.journal.events import Action, Detail, Event
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.rules import TokenRecord, TokenType

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "type": {kind.value: kind for kind in TokenType}.__getitem__,
    "limits": unpacked,
}

# Fields of a token that are looked up elsewhere, as the last ones of its record.
_NOT_STORED = {
    "suspended": "false",
    **dict.fromkeys(("actor_name", "owner_name", "owner", "uses", "networks"), "NULL"),
}


@lru_cache(64)
def token_reader(wanted: frozenset[str] | None) -> tuple[str, Callable[[rows.Row], TokenRecord]]:
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

    def make(row: rows.Row) -> TokenRecord:
        values = list(row)
        for index, convert in read:
            values[index] = convert(values[index])
        return record._make(values)

    columns = ", ".join(_NOT_STORED.get(name, name) for name in fields)
    # A row without columns to convert needs no Python code.
    return columns, make if read else partial(tuple.__new__, record)


TOKEN, token_of = token_reader(None)

INSERTED = (
    "id, type, name, description, actor_urn, owner_urn, created_at, expires_at, created_with, limits, parent, root,"
    " replaces, grace, full_end"
)
_new_values = attrgetter(*INSERTED.split(", "))


def token_values(record: TokenRecord) -> tuple[Any, ...]:
    """The values of INSERTED. A new token was neither used nor revoked."""
    token_id, kind, *text, limits, parent, root, replaces, grace, full_end = _new_values(record)
    return (token_id, kind.value, *text, limits.packed(), parent, root, replaces, grace, full_end)


def created_event(record: TokenRecord) -> Event:
    detail: dict[str, Detail] = {"name": record.name, "actorUrn": record.actor_urn, "expiresAt": record.expires_at}
    detail |= {limit.tag: list(words) for limit in LIMITS if (words := getattr(record.limits, limit.tag)) is not None}
    if record.replaces is not None:
        return Event(Action.TOKEN_ROTATED, record.id, {**detail, "replaces": record.replaces})
    if record.parent is not None:
        return Event(Action.TOKEN_DERIVED, record.id, {**detail, "parent": record.parent})
    return Event(Action.TOKEN_CREATED, record.id, detail)


async def insert_tokens(tx: Transaction, records: Sequence[TokenRecord]) -> None:
    fold = tx.dialect.stored_folded
    if fold is None:
        await tx.insert_rows("tokens", INSERTED, [token_values(record) for record in records])
    else:
        values = [(*token_values(record), fold(record.name), fold(record.description)) for record in records]
        await tx.insert_rows("tokens", f"{INSERTED}, name_folded, description_folded", values)


def idempotency_lock(record: IdempotencyRecord) -> str:
    return f"idempotency:{record.digest}{record.actor}"
