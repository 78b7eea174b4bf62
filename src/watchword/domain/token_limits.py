"""Token limits: scopes, audience and networks.

Each limit is absent, which limits nothing, or a list, which allows only its entries. A scope is the name of a privilege
of this service, or a scope of another service. Limits never add rights: a token may do what its actor may do *and* its
limits allow.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from watchword.domain.bounded_cache import cached_within
from watchword.domain.errors import Fault, Reason, check_length, invalid
from watchword.domain.networks import Network, within
from watchword.domain.policies import EVERYTHING, PRIVILEGE_NAMES, Privilege, Right, included, right_name, right_of
from watchword.domain.scopes import ALL_SCOPES, covering

MAX_ENTRIES = 50
MAX_NETWORK = 100
MAX_AUDIENCE = 255
MAX_TEXT = 3_000  # of scopes and audience together: they are part of the token, which must fit into a header

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_PRIVILEGE = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)


class Limits(NamedTuple):
    scopes: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    until: int | None = None  # latest expiry of a token created with a limited token, across rotations

    @property
    def are_none(self) -> bool:
        return self == UNLIMITED

    @property
    def privileges(self) -> frozenset[Privilege]:
        """All privileges within the scopes."""
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
        return Limits(**{name: tuple(value) for name, value in kept.items()}, until=until)
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
    """Validate the limits that a caller requests."""
    for field, given in (("audience", audience), ("allowedNetworks", networks)):
        if given is not None and not given:
            raise invalid(field, f"{field} must have at least one entry, or the token could not be used.")
    if sum(map(len, [*(scopes or ()), *(audience or ())])) > MAX_TEXT:
        raise invalid("scopes", f"scopes and audience may have at most {MAX_TEXT:,} characters together.")
    return Limits(
        None if scopes is None else _each(scopes, "scopes", check_scope_name),
        None if audience is None else _each(audience, "audience", check_audience),
        None if networks is None else _each(networks, "allowedNetworks", _network),
    )


def inherited(maker: Limits, requested: Limits) -> Limits:
    """The limits of a token created with a limited token: the maker's, or narrower ones; never wider."""
    limits = []
    for field, allowed, wanted, covers in (
        ("scopes", maker.scopes, requested.scopes, _scopes_cover),
        ("audience", maker.audience, requested.audience, _words_cover),
        ("allowedNetworks", maker.networks, requested.networks, _networks_cover),
    ):
        if allowed is not None and wanted is not None and not covers(allowed, wanted):
            raise wider(field, "Allowed: " + (", ".join(allowed) or "none"))
        limits.append(allowed if wanted is None else wanted)
    scopes, audience, networks = limits
    return Limits(scopes, audience, networks, maker.until)


def wider(field: str, has: str) -> Fault:
    message = f"{field} must not exceed the limits of the token you are using. {has}."
    return Fault(Reason.WIDER_THAN_MAKER, message, field=field)


def _each(values: Sequence[str], field: str, check: Callable[[str, str], str]) -> tuple[str, ...]:
    check_length(values, field, MAX_ENTRIES)
    return tuple(sorted({check(value, f"{field}[{index}]") for index, value in enumerate(values)}))


def check_scope_name(word: str, field: str) -> str:
    """The name of a privilege of this service, or a scope of another one."""
    if _PRIVILEGE.fullmatch(word) and word not in Privilege.__members__:
        raise invalid(
            field,
            f"{field} is not a privilege. Scopes in capital letters must be one of: {PRIVILEGE_NAMES}; other scopes "
            "are in small letters.",
        )
    return right_name(right_of(word, field))


def check_audience(word: str, field: str) -> str:
    if not 1 <= len(word) <= MAX_AUDIENCE or not all("\x21" <= character <= "\x7e" for character in word):
        raise invalid(
            field, f"{field} must have 1 to {MAX_AUDIENCE} visible ASCII characters, such as https://api.example."
        )
    return word


def _network(text: str, field: str) -> str:
    try:
        network = None if len(text) > MAX_NETWORK or "%" in text else ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or (isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED)):
        raise invalid(
            field,
            f"{field} must be a CIDR network without host bits, such as 10.0.0.0/8 or 2001:db8::/32; write IPv4-mapped "
            "IPv6 networks as IPv4.",
        )
    return str(network)


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


def _words_cover(maker: tuple[str, ...], made: tuple[str, ...]) -> bool:
    return set(made) <= set(maker)


def _scopes_cover(maker: tuple[str, ...], made: tuple[str, ...]) -> bool:
    """Whether each scope is among the maker's, or is included in one of them."""
    words = _words(maker)
    return _privileges(made) <= _privileges(maker) and all(covering(words, word) for word in _words(made))


def _networks_cover(maker: tuple[str, ...], made: tuple[str, ...]) -> bool:
    return all(any(_is_part(inner, outer) for outer in map(_parsed, maker)) for inner in map(_parsed, made))


def _is_part(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
