"""Token limits: scopes, audience and networks.

Each limit is absent, which limits nothing, or a list, which allows only its entries. A scope is the name of a privilege
of this service, or a scope of another service. Limits never add rights: a token may do what its actor may do *and* its
limits allow. Each kind of limit is a class of LIMITS: a new one is another class, and a field of `Limits`.
"""

import ipaddress
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from watchword.authority.privileges import EVERYTHING, PRIVILEGE_NAMES, Privilege, Right, included, right_name, right_of
from watchword.basics.bounded_cache import cached_within
from watchword.basics.errors import Fault, Reason, check_length, invalid
from watchword.basics.networks import Network, within
from watchword.basics.scopes import ALL_SCOPES, covering

MAX_ENTRIES = 50
MAX_NETWORK = 100
MAX_AUDIENCE = 255
MAX_TEXT = 3_000  # of scopes and audience together: they are part of the token, which must fit into a header

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_PRIVILEGE = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)

Entries = tuple[str, ...]


class Limit:
    """One kind of limit, a list of words. It allows only these, in the token and in those created with it."""

    tag: ClassVar[str]
    """In the store and in events; the field of `Limits`."""
    field: ClassVar[str]
    """In requests."""
    may_be_empty: ClassVar[bool] = False

    @classmethod
    def check(cls, word: str, field: str) -> str:
        """Validate an entry of a request."""
        raise NotImplementedError

    @classmethod
    def covers(cls, allowed: Entries, wanted: Entries) -> bool:
        """Whether each wanted entry is within the allowed ones."""
        return set(wanted) <= set(allowed)

    @classmethod
    def requested(cls, words: Sequence[str] | None) -> Entries | None:
        if words is None:
            return None
        check_length(words, cls.field, MAX_ENTRIES)
        return tuple(sorted({cls.check(word, f"{cls.field}[{index}]") for index, word in enumerate(words)}))

    @classmethod
    def narrowed(cls, allowed: Entries | None, wanted: Entries | None) -> Entries | None:
        """The limit of a token that is created with one that has the limit `allowed`; never wider."""
        if allowed is not None and wanted is not None and not cls.covers(allowed, wanted):
            raise wider(cls.field, "Allowed: " + (", ".join(allowed) or "none"))
        return allowed if wanted is None else wanted


class ScopeLimit(Limit):
    tag = field = "scopes"
    may_be_empty = True

    @classmethod
    def check(cls, word: str, field: str) -> str:
        """The name of a privilege of this service, or a scope of another one."""
        if _PRIVILEGE.fullmatch(word) and word not in Privilege.__members__:
            raise invalid(
                field,
                f"{field} is not a privilege. Scopes in capital letters must be one of: {PRIVILEGE_NAMES}; other "
                "scopes are in small letters.",
            )
        return right_name(right_of(word, field))

    @classmethod
    def covers(cls, allowed: Entries, wanted: Entries) -> bool:
        """A scope may also be included in one of the allowed ones."""
        words = _words(allowed)
        return _privileges(wanted) <= _privileges(allowed) and all(covering(words, word) for word in _words(wanted))


class AudienceLimit(Limit):
    tag = field = "audience"

    @classmethod
    def check(cls, word: str, field: str) -> str:
        if not 1 <= len(word) <= MAX_AUDIENCE or not all("\x21" <= character <= "\x7e" for character in word):
            raise invalid(
                field, f"{field} must have 1 to {MAX_AUDIENCE} visible ASCII characters, such as https://api.example."
            )
        return word


class NetworkLimit(Limit):
    tag, field = "networks", "allowedNetworks"

    @classmethod
    def check(cls, word: str, field: str) -> str:
        try:
            network = None if len(word) > MAX_NETWORK or "%" in word else ipaddress.ip_network(word)
        except ValueError:
            network = None
        if network is None or (isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED)):
            raise invalid(
                field,
                f"{field} must be a CIDR network without host bits, such as 10.0.0.0/8 or 2001:db8::/32; write "
                "IPv4-mapped IPv6 networks as IPv4.",
            )
        return str(network)

    @classmethod
    def covers(cls, allowed: Entries, wanted: Entries) -> bool:
        return all(any(_is_part(_parsed(inner), _parsed(outer)) for outer in allowed) for inner in wanted)


LIMITS: tuple[type[Limit], ...] = (ScopeLimit, AudienceLimit, NetworkLimit)


class Limits(NamedTuple):
    """The limits of a token, by their tags."""

    scopes: Entries | None = None
    audience: Entries | None = None
    networks: Entries | None = None
    until: int | None = None  # latest expiry of a token created with a limited token, across rotations

    @property
    def are_none(self) -> bool:
        return self == UNLIMITED

    @property
    def concern_gateways(self) -> bool:
        """Whether more than the rights of the token decides what a gateway is answered."""
        return self.scopes is not None or self.audience is not None

    @property
    def privileges(self) -> frozenset[Privilege]:
        return _privileges(self.scopes)

    @property
    def words(self) -> frozenset[str]:
        """The scopes of other services that the token is limited to; without a limit, all."""
        return _words(self.scopes)

    def allow(self, right: Right) -> bool:
        return covering(self.words, right) is not None if isinstance(right, str) else right in self.privileges

    def allow_named(self, word: str) -> bool:
        """The same for the name of a privilege, or a scope."""
        return self.allow(Privilege.__members__.get(word, word))

    def holds_audience(self, word: str) -> bool:
        return self.audience is not None and word in self.audience

    def allow_from(self, client: str) -> bool:
        """Whether the token may be used from this address."""
        return self.networks is None or within(client, map(_parsed, self.networks))

    def packed(self) -> str | None:
        """The stored form; None for no limits."""
        if self.are_none:
            return None
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return json.dumps(given, separators=(",", ":"))


UNLIMITED = Limits()
UNREADABLE = Limits((), (), ())
"""In a record, instead of stored limits that this version cannot read: they allow nothing."""


@cached_within()
def unpacked(text: str | None) -> Limits:
    """The limits from their stored form. UNREADABLE if a newer version wrote what this one does not know."""
    if text is None:
        return UNLIMITED
    try:
        kept: dict[str, Any] = json.loads(text)
        until = kept.pop("until", None)
        return Limits(**{tag: tuple(words) for tag, words in kept.items()}, until=until)
    except (AttributeError, TypeError, ValueError):
        return UNREADABLE


def readable(text: str | None, token_id: str) -> Limits:
    """The limits of a token that is verified."""
    limits = unpacked(text)
    if limits is UNREADABLE:
        raise unreadable(token_id)
    return limits


def unreadable(token_id: str) -> Fault:
    cause = f"The limits of the token {token_id} cannot be read: a newer version wrote them, or the row is damaged."
    return Fault(Reason.INTERNAL, "Internal server error.", cause=cause)


def check_limits(
    scopes: Sequence[str] | None, audience: Sequence[str] | None, networks: Sequence[str] | None
) -> Limits:
    given = tuple(zip(LIMITS, (scopes, audience, networks), strict=True))
    for limit, words in given:
        if words is not None and not words and not limit.may_be_empty:
            raise invalid(limit.field, f"{limit.field} must have at least one entry, or the token could not be used.")
    if sum(map(len, [*(scopes or ()), *(audience or ())])) > MAX_TEXT:
        raise invalid("scopes", f"scopes and audience may have at most {MAX_TEXT:,} characters together.")
    return Limits(**{limit.tag: limit.requested(words) for limit, words in given}, until=None)


def inherited(maker: Limits, requested: Limits) -> Limits:
    """The limits of a token created with a limited token: the maker's, or narrower ones; never wider."""
    lists = {limit.tag: limit.narrowed(getattr(maker, limit.tag), getattr(requested, limit.tag)) for limit in LIMITS}
    return Limits(**lists, until=maker.until)


def wider(field: str, has: str) -> Fault:
    message = f"{field} must not exceed the limits of the token you are using. {has}."
    return Fault(Reason.WIDER_THAN_MAKER, message, field=field)


@cached_within()
def _privileges(scopes: tuple[str, ...] | None) -> frozenset[Privilege]:
    if scopes is None:
        return EVERYTHING
    return included(Privilege[word] for word in scopes if word in Privilege.__members__)


@cached_within()
def _words(scopes: tuple[str, ...] | None) -> frozenset[str]:
    return frozenset([ALL_SCOPES] if scopes is None else [word for word in scopes if word not in Privilege.__members__])


@lru_cache(10_000)
def _parsed(network: str) -> Network:
    return ipaddress.ip_network(network)


def _is_part(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
