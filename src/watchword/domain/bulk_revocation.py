"""Endings: many tokens ended at once, by their ids or by the filters of a list, with a receipt."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.filters import Condition, Field, Filter
from watchword.domain.tokens import TokenRecord, TokenStatus, TokenType

MOST = 100_000
"""Ended by one call."""
MOST_IDS = 2_000
MOST_PLAIN_VALUES = 100
MOST_ACTORS = 100
"""Named in the answer to a dry run."""


NOBODY = ""
"""Whom no token is of."""


@dataclass(frozen=True, slots=True)
class TokenVisibility:
    """Whose tokens a caller may end or see: of and by one actor, and those of service accounts."""

    actor: str
    accounts: bool = False
    created: bool = True
    """Whether those that the actor made for others are among them."""

    def covers(self, record: TokenRecord) -> bool:
        return (
            self.actor == record.actor_urn
            or (self.created and self.actor == record.owner_urn)
            or (self.accounts and record.type is TokenType.SERVICE_ACCOUNT)
        )


_OF_TEXT = {Condition.IEQUAL, Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH}
_ANY_STATUS = Filter(Field.STATUS, Condition.IN, tuple(status.value for status in TokenStatus))
_LIVE = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tokens to end: all that are meant by every one of these. `everything`: it may well be all there are.
    `visibility` is the server's own constraint.
    """

    ids: tuple[str, ...] | None = None
    filters: tuple[Filter, ...] = ()
    everything: bool = False
    cascade: bool = False
    at_most: int | None = None
    """More than the caller has seen are not ended, nor is any."""
    visibility: TokenVisibility | None = None

    @property
    def seeds(self) -> tuple[Filter, ...]:
        """The filters of those from which to go on: live ones, unless the dead lead on."""
        return (*self.filters, _ANY_STATUS if self.leads_on else _LIVE)

    @property
    def leads_on(self) -> bool:
        """By a cascade the dead lead on to what they minted, where they are named, or their status is."""
        return self.cascade and (self.ids is not None or any(f.field is Field.STATUS for f in self.filters))

    @property
    def is_plain(self) -> bool:
        """Whether each token is judged in no time, so that it is done while others wait for the write, and none slips
        through that is made meanwhile. Otherwise those are meant that matched when it was asked.
        """
        return sum(len(f.values) for f in self.filters) <= MOST_PLAIN_VALUES and all(
            f.condition not in _OF_TEXT for f in self.filters
        )

    @property
    def may_be_all(self) -> bool:
        """Whether that is said, or it says by name whose, or which ones: nobody means all of them by mistake."""
        return self.everything or self.ids is not None or any(_pins(f) for f in self.filters)


@dataclass(frozen=True, slots=True)
class Share:
    """How many tokens of one actor."""

    actor_urn: str
    count: int


@dataclass(frozen=True, slots=True)
class RevocationPreview:
    """What an ending would end: how many tokens, and whose, most first."""

    count: int
    actors: tuple[Share, ...]
    all_actors: int
    seconds: float = field(default=0.0, compare=False)
    """Of a processor, that the store took for it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was ended, all of it in one moment. The digest is over the ids in their order, each with a line's end."""

    count: int
    digest: str
    revoked_at: int


class Revocation(NamedTuple):
    """When a token was revoked, and how many with it, itself included."""

    at: int
    number: int


def check_selection(
    ids: Sequence[str] | None, filters: tuple[Filter, ...] | None, everything: bool, cascade: bool, at_most: int | None
) -> Selection:
    if at_most is not None and at_most < 0:
        raise invalid("atMost", "atMost must be 0 or more.")
    if ids is not None and len(ids) > MOST_IDS:
        raise invalid("ids", f"ids may have at most {MOST_IDS:,} entries; use filters for more.")
    if ids is None and not filters and not everything:
        raise everything_meant()
    return Selection(None if ids is None else tuple(dict.fromkeys(ids)), filters or (), everything, cascade, at_most)


def check_count(count: int, at_most: int | None = None) -> None:
    if count > MOST:
        raise too_many()
    if at_most is not None and count > at_most:
        raise Fault(
            Reason.MORE_THAN_ALLOWED_FOR,
            f"By now {count:,} tokens are meant, more than the {at_most:,} that atMost allows for. None was revoked:"
            " look at a dry run again.",
        )


def check_meant(selection: Selection, count: int, *, spares: bool) -> None:
    """Nobody ends all that live without having meant it; `spares` says whether any is left."""
    if count and not spares and not selection.may_be_all:
        raise everything_meant()


def everything_meant() -> Fault:
    return invalid("all", "This means every token there is. Give ids or filters, or say all: true.")


def too_many() -> Fault:
    return Fault(
        Reason.TOO_MANY_AT_ONCE,
        f"More than {MOST:,} tokens are meant; at most so many are ended in one call. Narrow it.",
    )


def receipt(ids: Iterable[str], revoked_at: int) -> Receipt:
    digest = sha256()
    count = 0
    for token_id in sorted(ids):
        digest.update(token_id.encode() + b"\n")
        count += 1
    return Receipt(count, digest.hexdigest(), revoked_at)


def _pins(f: Filter) -> bool:
    return (
        f.field in (Field.ACTOR_URN, Field.OWNER_URN, Field.ID, Field.URN)
        and f.condition in (Condition.EQUAL, Condition.IN)
        and not f.negated
    )
