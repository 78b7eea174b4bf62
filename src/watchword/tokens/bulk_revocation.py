"""Revoking many tokens in one call, by ids or by list filters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from watchword.basics.errors import Fault, Reason, invalid
from watchword.tokens.filters import Condition, Field, Filter, parse_filters
from watchword.tokens.rules import TokenRecord, TokenStatus, TokenType, check_token_id

MOST = 100_000  # revoked by one call
MOST_IDS = 2_000
MOST_PLAIN_VALUES = 100
MOST_ACTORS = 100  # listed in the answer to a dry run
NO_ACTOR = ""  # no token has this actor


@dataclass(frozen=True, slots=True)
class TokenVisibility:
    actor: str
    accounts: bool = False
    created: bool = True  # includes tokens that the actor created for others

    def covers(self, record: TokenRecord) -> bool:
        return (
            self.actor == record.actor_urn
            or (self.created and self.actor == record.owner_urn)
            or (self.accounts and record.type is TokenType.SERVICE_ACCOUNT)
        )


_NAMING = (Field.ACTOR_URN, Field.OWNER_URN, Field.ID, Field.URN)
_OF_TEXT = {Condition.IEQUAL, Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH}
_ANY_STATUS = Filter(Field.STATUS, Condition.IN, tuple(status.value for status in TokenStatus))
_LIVE = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))


@dataclass(frozen=True, slots=True)
class Selection:
    """The tokens to revoke: those that match ids and filters. `everything` confirms that this may be all tokens.
    `visibility` is the server's constraint.
    """

    ids: tuple[str, ...] | None = None
    filters: tuple[Filter, ...] = ()
    everything: bool = False
    cascade: bool = False
    at_most: int | None = None  # if more tokens match, nothing is revoked
    visibility: TokenVisibility | None = None

    @property
    def seeds(self) -> tuple[Filter, ...]:
        """The filters of the tokens to start from: only live ones, unless a cascade follows dead ones."""
        return (*self.filters, _ANY_STATUS if self.follows_dead else _LIVE)

    @property
    def follows_dead(self) -> bool:
        """Whether a cascade also follows dead tokens: where ids or a status filter name them."""
        return self.cascade and (self.ids is not None or any(f.names_status for f in self.filters))

    @property
    def is_plain(self) -> bool:
        """Whether the filters are cheap enough for the write transaction, so that tokens created concurrently cannot be
        missed. Otherwise a search before the transaction selects the tokens.
        """
        return sum(len(f.values) for f in self.filters) <= MOST_PLAIN_VALUES and all(
            f.condition not in _OF_TEXT for f in self.filters
        )

    @property
    def may_be_all(self) -> bool:
        """Whether the caller confirmed it, or named ids or actors, so that revoking everything is no mistake."""
        return (
            self.everything
            or self.ids is not None
            or any(
                f.field in _NAMING and f.condition in (Condition.EQUAL, Condition.IN) and not f.negated
                for f in self.filters
            )
        )


@dataclass(frozen=True, slots=True)
class Share:
    actor_urn: str
    count: int


@dataclass(frozen=True, slots=True)
class RevocationPreview:
    """The tokens that would be revoked: their number, and the actors with most tokens first."""

    count: int
    actors: tuple[Share, ...]
    seconds: float = field(default=0.0, compare=False)  # processor time of the store


@dataclass(frozen=True, slots=True)
class Receipt:
    """The tokens revoked by one call. The digest is over the sorted ids, each followed by a line feed."""

    count: int
    digest: str
    revoked_at: int


class Revocation(NamedTuple):
    """The time, and the number of tokens revoked, this one included."""

    at: int
    number: int


def parse_selection(fields: Mapping[str, Any], now: int) -> Selection:
    ids, at_most = fields.get("ids"), fields.get("atMost")
    if ids is not None:
        ids = tuple(dict.fromkeys(check_token_id(text, f"ids[{index}]") for index, text in enumerate(ids)))
    filters = parse_filters(fields.get("filters") or [], now)
    if at_most is not None and at_most < 0:
        raise invalid("atMost", "atMost must be 0 or more.")
    if ids is not None and len(fields["ids"]) > MOST_IDS:
        raise invalid("ids", f"ids may have at most {MOST_IDS:,} entries. Use filters for more.")
    if ids is None and not filters and not fields.get("all"):
        raise unconfirmed()
    return Selection(ids, filters, bool(fields.get("all")), bool(fields.get("cascade")), at_most)


def check_count(count: int, at_most: int | None = None) -> None:
    if count > MOST:
        raise Fault(
            Reason.TOO_MANY_AT_ONCE,
            f"More than {MOST:,} tokens match, the most that one call can revoke. Narrow the filters.",
        )
    if at_most is not None and count > at_most:
        raise Fault(
            Reason.MORE_THAN_ALLOWED_FOR,
            f"{count:,} tokens match; atMost is {at_most:,}. Nothing was revoked. Repeat the dry run.",
        )


def unconfirmed() -> Fault:
    return invalid("all", "This would revoke every token. Give ids or filters, or set all: true.")


def receipt(ids: Iterable[str], revoked_at: int) -> Receipt:
    lines = [f"{token_id}\n" for token_id in sorted(ids)]
    return Receipt(len(lines), sha256("".join(lines).encode()).hexdigest(), revoked_at)
