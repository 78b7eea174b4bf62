"""Values of settings: each reads a text into what it means, or says in a ValueError what it must be."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from watchword.domain.errors import Fault
from watchword.domain.indices import Aspect, is_prefix, parse_aspect
from watchword.domain.lifetimes import Duration
from watchword.domain.secret import Secret
from watchword.domain.urns import check_actor

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """Where the search index is: hosts of one cluster, and who we are there."""

    hosts: tuple[str, ...]
    user: str | None = None
    password: Secret[str] | None = None

    def __str__(self) -> str:
        return ",".join(self.hosts)


def host(text: str) -> str:
    if text.startswith("unix:/") or text == "localhost":
        return text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("an IP address, localhost, or unix:/path/of.sock") from None
    return text


def port(text: str) -> int:
    return number(text, 1, 65_535)


def workers(text: str) -> int:
    return number(text, 1, 256)


def max_live(text: str) -> int:
    return number(text, 1, 10_000_000)


def days(text: str) -> int:
    return number(text, 1, 36_500)


def number(text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"a whole number from {least} to {most}")


def url(text: str) -> str | None:
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("an address such as https://tokens.example.org")
    return text.rstrip("/")


def path(text: str) -> Path | None:
    return Path(text) if text else None


def data_dir(text: str) -> Path:
    if not text:
        raise ValueError("a folder")
    return Path(text)


def database(text: str) -> str | None:
    if not text or (text.startswith("sqlite:///") and len(text) > len("sqlite:///")):
        return text or None
    raise ValueError("sqlite:///path/of/file (other stores come with a later version)")


def actor(text: str) -> str:
    try:
        return check_actor(text, "it")
    except Fault as fault:
        raise ValueError(f"a user's urn ({fault.message})") from None


def switch(text: str) -> bool:
    words = {
        "on": True,
        "true": True,
        "1": True,
        "yes": True,
        "off": False,
        "false": False,
        "0": False,
        "no": False,
    }
    if text.lower() not in words:
        raise ValueError("on or off")
    return words[text.lower()]


def local_mode(text: str) -> bool | None:
    if text.lower() == "auto":
        return None
    try:
        return switch(text)
    except ValueError:
        raise ValueError("auto, on or off") from None


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in words(text))
    except ValueError:
        raise ValueError("networks such as 10.0.0.0/8,192.168.1.7/32") from None


def peers(text: str) -> tuple[Network | None, ...]:
    """Networks, or None for the callers on the Unix socket."""
    try:
        return tuple(None if word == "unix" else networks(word)[0] for word in words(text))
    except ValueError as error:
        raise ValueError(f"{error}, or unix") from None


def headers(text: str) -> tuple[str, ...]:
    names = words(text)
    if not names or not all(re.fullmatch(r"[Xx]-[A-Za-z0-9-]+", name) for name in names):
        raise ValueError("names of headers that begin with X-, such as X-Service-Actor")
    return tuple(names)


def durations(text: str) -> tuple[Duration, ...]:
    named = [duration.name for duration in Duration if duration is not Duration.NO_EXPIRY]
    chosen = words(text)
    if not chosen or not set(chosen) <= set(named):
        raise ValueError(f"some of {', '.join(named)}")
    return tuple(Duration[word] for word in chosen)


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.lower()

    return parse


_INDEX_FORM = "http(s)://[user:password@]host:port[,host:port], without a path"


def index_url(text: str) -> IndexAddress | None:
    """One scheme and one user for all hosts, said before the first."""
    if not text:
        return None
    first, *others = words(text)
    try:
        parts = urlsplit(first)
        where = [parts.netloc.rpartition("@")[2] + parts.path + parts.query + parts.fragment, *others]
        hosts = tuple(_index_host(parts.scheme, one) for one in where)
        user, password = parts.username, parts.password
    except ValueError:
        raise ValueError(_INDEX_FORM) from None
    if parts.scheme not in ("http", "https") or (user is None) != (password is None):
        raise ValueError(_INDEX_FORM)
    return IndexAddress(hosts, unquote(user), Secret(unquote(password))) if user and password else IndexAddress(hosts)


def _index_host(scheme: str, text: str) -> str:
    parts = urlsplit(f"{scheme}://{text.rstrip('/')}")
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in text or parts.port == 0:
        raise ValueError(_INDEX_FORM)
    return parts.geturl()


def index_prefix(text: str) -> str:
    if text and not is_prefix(text):
        raise ValueError("at most 40 small letters, digits and -, beginning with a letter or digit")
    return text


def aspects(text: str) -> tuple[Aspect, ...]:
    try:
        return tuple(parse_aspect(word) for word in words(text))
    except ValueError:
        raise ValueError("entities and aspects such as dataset.operation,chart.chartUsageStatistics") from None


def secret(text: str) -> Secret[str] | None:
    return Secret(text) if text else None


def seconds(text: str) -> int:
    return number(text, 1, 600)


def rate(text: str) -> int:
    return number(text, 0, 10_000_000)
