"""Token limits: scopes, audience and networks.

Each limit is absent, which limits nothing, or a list, which allows only its entries. A scope is a privilege of this
service, or a word that another service checks. Limits never add rights: a token may do what its actor may do *and* its
limits allow.
"""

import ipaddress
import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.policies import EVERYTHING, Privilege, included, privilege_words

MAX_ENTRIES = 50
MAX_WORD = 100
MAX_AUDIENCE = 255
MAX_TEXT = 3_000
"""Of scopes and audience together: they are part of the token, which must fit into a header."""
CACHE_BYTES = 4 * 1024 * 1024
"""For each of the three caches below."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_PRIVILEGE = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
# RFC 6749, a scope-token: visible ASCII but for the quote and the backslash.
_WORD = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+", re.ASCII)


class BoundedCache(Generic[Key, Value]):
    """A function of one argument with a cache bounded in bytes. The oldest entries are dropped first."""

    def __init__(self, make: Callable[[Key], Value], most_bytes: int = CACHE_BYTES) -> None:
        self._make = make
        self._most = most_bytes
        self._kept: dict[Key, Value] = {}
        self._lock = Lock()
        self.kept_bytes = 0

    def __call__(self, key: Key) -> Value:
        found = self._kept.get(key)
        if found is not None:
            return found
        made = self._make(key)
        with self._lock:  # searches create rows in threads
            if key not in self._kept:
                self._kept[key] = made
                self.kept_bytes += _weight(key, made)
            while self.kept_bytes > self._most:
                oldest = next(iter(self._kept))
                self.kept_bytes -= _weight(oldest, self._kept.pop(oldest))
        return made


def _weight(key: Any, value: Any) -> int:
    """In bytes, with its dictionary entry; shared objects count each time."""
    return 200 + _size(key) + _size(value)


def _size(value: Any) -> int:
    inner = sum(map(_size, value)) if isinstance(value, tuple | frozenset) else 0
    return sys.getsizeof(value) + inner


class Limits(NamedTuple):
    scopes: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    until: int | None = None
    """Latest expiry of a token created with a limited token, across rotations."""

    @property
    def are_none(self) -> bool:
        return self == UNLIMITED

    @property
    def privileges(self) -> frozenset[Privilege]:
        """All privileges within the scopes."""
        return _privileges(self.scopes)

    def holds_scope(self, word: str) -> bool:
        """Whether the token has the scope, or a privilege that includes it. A token without scopes has none."""
        return self.scopes is not None and (word in self.scopes or word in {p.name for p in self.privileges})

    def holds_audience(self, word: str) -> bool:
        return self.audience is not None and word in self.audience

    def allow_from(self, client: str) -> bool:
        """Whether the token may be used from this address."""
        return self.networks is None or _within(client, self.networks)

    def packed(self) -> str | None:
        """The stored form; None for no limits."""
        if self.are_none:
            return None
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return json.dumps(given, separators=(",", ":"))


UNLIMITED = Limits()


@BoundedCache
def unpacked(text: str | None) -> Limits:
    """The limits from their stored form."""
    if text is None:
        return UNLIMITED
    kept: dict[str, Any] = json.loads(text)
    until = kept.pop("until", None)
    return Limits(**{name: tuple(value) for name, value in kept.items()}, until=until)


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
        None if scopes is None else _each(scopes, "scopes", _scope),
        None if audience is None else _each(audience, "audience", _audience),
        None if networks is None else _each(networks, "allowedNetworks", _network),
    )


def inherited(maker: Limits, asked: Limits) -> Limits:
    """The limits of a token created with a limited token: the maker's, or narrower ones; never wider."""
    scopes = maker.scopes if asked.scopes is None else asked.scopes
    audience = maker.audience if asked.audience is None else asked.audience
    networks = maker.networks if asked.networks is None else asked.networks
    if not _scopes_cover(maker.scopes, scopes):
        raise wider("scopes", "Allowed: " + _listed(maker.scopes))
    if not _covers(maker.audience, audience):
        raise wider("audience", "Allowed: " + _listed(maker.audience))
    if not _networks_cover(maker.networks, networks):
        raise wider("allowedNetworks", "Allowed: " + _listed(maker.networks))
    return Limits(scopes, audience, networks, maker.until)


def wider(field: str, has: str) -> Fault:
    message = f"{field} must not exceed the limits of the token you are using. {has}."
    return Fault(Reason.WIDER_THAN_MAKER, message, field=field)


def within(address: str, networks: Iterable[Network]) -> bool:
    """Whether the address, or the IPv4 address mapped to it, is in one of the networks."""
    meant = _address(address)
    return meant is not None and any(meant in network for network in networks)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _each(values: Sequence[str], field: str, check: Any) -> tuple[str, ...]:
    if len(values) > MAX_ENTRIES:
        raise invalid(field, f"{field} may have at most {MAX_ENTRIES} entries.")
    return tuple(sorted({check(value, f"{field}[{index}]") for index, value in enumerate(values)}))


def _scope(word: str, field: str) -> str:
    if len(word) > MAX_WORD or not _WORD.fullmatch(word):
        raise invalid(
            field,
            f"{field} must be the name of a privilege or at most {MAX_WORD} visible ASCII characters without spaces, "
            "quotes and backslashes.",
        )
    if _PRIVILEGE.fullmatch(word) and word not in Privilege.__members__:
        raise invalid(
            field,
            f"{field} is not a privilege. Scopes in capital letters must be one of: {privilege_words()}; other scopes "
            "need a lower-case letter, a leading digit, or a mark such as a colon.",
        )
    return word


def _audience(word: str, field: str) -> str:
    if not 1 <= len(word) <= MAX_AUDIENCE or not all("\x21" <= character <= "\x7e" for character in word):
        raise invalid(
            field, f"{field} must have 1 to {MAX_AUDIENCE} visible ASCII characters, such as https://api.example."
        )
    return word


def _network(text: str, field: str) -> str:
    network = _parse(text)
    if network is None or (isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED)):
        raise invalid(
            field,
            f"{field} must be a CIDR network without host bits, such as 10.0.0.0/8 or 2001:db8::/32; write IPv4-mapped "
            "IPv6 networks as IPv4.",
        )
    return str(network)


def _parse(text: str) -> Network | None:
    try:
        return None if len(text) > MAX_WORD or "%" in text else ipaddress.ip_network(text)
    except ValueError:
        return None


def _listed(values: tuple[str, ...] | None) -> str:
    return ", ".join(values or ()) or "none"


@BoundedCache
def _privileges(scopes: tuple[str, ...] | None) -> frozenset[Privilege]:
    if scopes is None:
        return EVERYTHING
    return included(Privilege[word] for word in scopes if word in Privilege.__members__)


def _parsed(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(network) for network in networks)


@BoundedCache
def _ranges(networks: tuple[str, ...]) -> tuple[tuple[int, int, int], ...]:
    """Version, address and mask of each network: a sixth of the memory of the library's objects."""
    return tuple((n.version, int(n.network_address), int(n.netmask)) for n in _parsed(networks))


def _within(client: str, networks: tuple[str, ...]) -> bool:
    """As `within`, for cached networks."""
    meant = _address(client)
    if meant is None:
        return False
    version, number = meant.version, int(meant)
    return any(kind == version and number & mask == base for kind, base, mask in _ranges(networks))


def _covers(maker: tuple[str, ...] | None, made: tuple[str, ...] | None) -> bool:
    return maker is None or (made is not None and set(made) <= set(maker))


def _scopes_cover(maker: tuple[str, ...] | None, made: tuple[str, ...] | None) -> bool:
    """Whether each scope is among the maker's, or is included in one of them."""
    if maker is None or made is None:
        return maker is None
    allowed = set(maker) | {privilege.name for privilege in _privileges(maker)}
    return set(made) <= allowed


def _networks_cover(maker: tuple[str, ...] | None, made: tuple[str, ...] | None) -> bool:
    if maker is None or made is None:
        return maker is None
    outer_networks = _parsed(maker)
    return all(any(_is_part(inner, outer) for outer in outer_networks) for inner in _parsed(made))


def _is_part(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
