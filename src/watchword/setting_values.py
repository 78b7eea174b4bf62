"""Parsers of setting values. A ValueError says what the value must be."""

import grp
import ipaddress
import os
import pwd
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from watchword.basics.errors import Fault
from watchword.basics.names import ACCOUNT_PREFIX, check_actor, check_email, check_group
from watchword.basics.networks import Network, is_loopback
from watchword.basics.secret import Secret
from watchword.basics.times import Duration
from watchword.database.urls import DEFAULT_PORT, PostgresUrl, SqliteUrl, StoreUrl
from watchword.index.indices import is_prefix, parse_aspect
from watchword.journal.events import StreamTarget, Transport
from watchword.notices.mail_rules import KINDS, SmtpUrl
from watchword.signin.session_rules import CLAIM, GROUP, is_secure

T = TypeVar("T")
MAX_LINE = 1_000
MYSQL_PORT = 3306
_CLAIM_NAME = r"[^\s{}=,]{1,200}"


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """The hosts of one cluster, and the user to sign in with."""

    hosts: tuple[str, ...]
    user: str | None = None
    password: Secret[str] | None = None

    def __str__(self) -> str:
        return ",".join(self.hosts)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class DataHubDatabase:
    """DataHub's database. Its text omits the password."""

    scheme: str  # mysql or postgresql
    host: str
    port: int
    user: str
    password: Secret[str] | None
    database: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.user}@{self.host}:{self.port}/{self.database}"


@dataclass(frozen=True, slots=True)
class DataHubFile:
    """An export: one row a line, as JSON. `-` is standard input."""

    path: Path

    def __str__(self) -> str:
        return "standard input" if str(self.path) == "-" else str(self.path)


DataHubUrl = DataHubDatabase | DataHubFile


@contextmanager
def must_be(what: str) -> Iterator[None]:
    """Says what the value must be, whichever check within fails. Messages of the checks might quote a password."""
    try:
        yield
    except _NamedError:
        raise
    except (Fault, ValueError, KeyError):
        raise ValueError(what) from None


class _NamedError(ValueError):
    """Says which part of an address is wrong."""


def matching(pattern: str, what: str) -> Callable[[str], str]:
    """A text that matches as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(what)
        return text

    return parse


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """None for an empty text."""
    return lambda text: parse(text) if text else None


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def listed(parse: Callable[[str], T], what: str, *, least: int = 0) -> Callable[[str], tuple[T, ...]]:
    """Words with commas between them."""

    def parse_all(text: str) -> tuple[T, ...]:
        with must_be(what):
            found = tuple(parse(word) for word in words(text))
            if len(found) < least:
                raise ValueError
        return found

    return parse_all


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.lower()

    return parse


def listen_address(text: str) -> ListenAddress:
    name, _, digits = text.rpartition(":")
    with must_be("an IP address or localhost, and a port, such as 127.0.0.1:9090 or [::1]:9090"):
        if name.startswith("["):
            return ListenAddress(str(ipaddress.IPv6Address(name.removeprefix("[").removesuffix("]"))), port(digits))
        return ListenAddress(str(ipaddress.IPv4Address("127.0.0.1" if name == "localhost" else name)), port(digits))


def host(text: str) -> str:
    if not text.startswith("unix:/") and text != "localhost":
        with must_be("an IP address, localhost, or unix:/path/of.sock"):
            ipaddress.ip_address(text)
    return text


def between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a whole number from {least} to {most}")

    return parse


port = between(1, 65_535)


def url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("an address such as https://tokens.example.org")
    return text.rstrip("/")


def oidc_issuer(text: str) -> str:
    """Kept as it is: a provider's issuer is compared character by character."""
    if not is_secure(text) or (parts := urlsplit(text)).query or parts.fragment or parts.username:
        raise ValueError("an https address such as https://id.example.org/realms/main (http only on this machine)")
    return text


def one_line(text: str) -> str:
    if not text.isprintable() or len(text) > MAX_LINE:
        raise ValueError(f"one line of at most {MAX_LINE} characters")
    return text


def secret_line(text: str) -> Secret[str]:
    return Secret(one_line(text))


def secret_text(text: str) -> Secret[bytes]:
    return Secret(one_line(text).encode())


def oidc_scopes(text: str) -> str:
    words = text.split()
    if "openid" not in words or not all(re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", word) for word in words):
        raise ValueError("scopes separated by spaces, openid among them")
    return " ".join(words)


claim_name = matching(_CLAIM_NAME, "the name of a claim, such as groups")


def actor_template(text: str) -> str:
    with must_be("the urn of an actor with claims in braces: urn:li:corpuser:{preferred_username}"):
        check_actor(CLAIM.sub("x", text), "template")
        claims = CLAIM.findall(text)
        if not claims or not all(re.fullmatch(_CLAIM_NAME, claim) for claim in claims):
            raise ValueError
    return text


def group_template(text: str) -> str:
    with must_be("the urn of a group with {group} in it, such as urn:li:corpGroup:{group}"):
        check_group(text.replace(GROUP, "x"), "template")
        if text.count(GROUP) != 1 or CLAIM.findall(text) != [GROUP.strip("{}")]:
            raise ValueError
    return text


def _claim_value(text: str) -> tuple[str, str]:
    claim, _, value = text.partition("=")
    if not re.fullmatch(_CLAIM_NAME, claim) or not value:
        raise ValueError
    return claim, value


claim_values = listed(_claim_value, "claim=value, separated by commas, such as hd=example.org,groups=staff")


def data_dir(text: str) -> Path:
    """A mounted folder that every user may write to, as an emptyDir of Kubernetes, gets a private folder inside."""
    if not text:
        raise ValueError("a folder")
    folder = Path(text)
    with suppress(OSError):
        seen = folder.stat()
        if seen.st_mode & 0o002 and seen.st_uid == 0 != os.geteuid():
            return folder / "watchword"
    return folder


def trusted_group(text: str) -> int:
    """The database of users cannot know every member of a group; those that it knows must be this user."""
    held = {os.getegid(), *os.getgroups()} - {0}
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or int(text) not in held:
        listed = ", ".join(map(str, sorted(held))) or "none"
        raise ValueError(f"the number of a group of this process, other than 0 (it has: {listed})")
    group, users = int(text), pwd.getpwall()
    members = {user.pw_name for user in users if user.pw_gid == group}
    with suppress(KeyError):
        members.update(grp.getgrgid(group).gr_mem)
    others = members - {user.pw_name for user in users if user.pw_uid == os.geteuid()}
    if others:
        raise ValueError(f"a group without other members; {group} has {', '.join(sorted(others))}")
    return group


_DATABASE_FORM = (
    "postgresql://user:password@host:port/database (special characters in it as %2F, %40, %23), or "
    "sqlite:///path/of/file; "
    "further hosts after a comma, and after ? any of sslmode, sslrootcert, sslcert, sslkey, target_session_attrs"
)
_DATABASE_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")
_TLS_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")


def database(text: str) -> StoreUrl:
    """Messages never quote the text, which may hold a password."""
    if text.startswith("sqlite:///") and len(text) > len("sqlite:///"):
        return SqliteUrl(Path(text.removeprefix("sqlite:///")))
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError(_DATABASE_FORM)
    with must_be(_DATABASE_FORM):
        return _postgres_url(text)


_DATAHUB_FORM = (
    "mysql://user:password@host:port/database, postgresql://user:password@host:port/database or the path of a file; "
    "after ? any of sslmode, sslrootcert, sslcert, sslkey"
)


def datahub_url(text: str) -> DataHubUrl:
    """Messages never quote the text, which may hold a password."""
    scheme, found, _ = text.partition("://")
    if not found and text:
        return DataHubFile(Path(text))
    kinds = {"mysql": "mysql", "mariadb": "mysql", "postgresql": "postgresql", "postgres": "postgresql"}
    with must_be(_DATAHUB_FORM):
        url = _postgres_url(text, MYSQL_PORT if kinds[scheme] == "mysql" else DEFAULT_PORT)
        ((host, port),) = url.hosts
    return DataHubDatabase(kinds[scheme], host, port, url.user, url.password, url.database, url.options)


def _postgres_url(text: str, port_without: int = DEFAULT_PORT) -> PostgresUrl:
    # urllib rejects several hosts if one is an address in brackets.
    address = text.partition("://")[2]
    netloc = re.split("[/?#]", address, maxsplit=1)[0]
    parts = urlsplit(f"//hosts{address[len(netloc) :]}")
    credentials, _, where = netloc.rpartition("@")
    name, colon, word = credentials.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    folder = options.pop("host", "")
    default_port = port(options.pop("port", str(port_without)))
    for option, value in options.items():
        if option not in _DATABASE_OPTIONS:
            raise _NamedError(f"an address whose parameters are among {', '.join(_DATABASE_OPTIONS)}, host and port")
        if option == "sslmode" and value not in _TLS_MODES:
            raise _NamedError(f"an address whose sslmode is one of {', '.join(_TLS_MODES)}")
        if option == "target_session_attrs" and value not in ("any", "read-write", "primary"):
            raise _NamedError("an address whose target_session_attrs is read-write (or primary, or any: the same here)")
    if not where and not folder.startswith("/"):
        raise _NamedError("an address with a host, or with ?host=/folder/of/its/socket")
    hosts = [_database_host(host, default_port) for host in where.split(",")] if where else [(folder, default_port)]
    user, base = unquote(name, errors="strict"), unquote(parts.path[1:], errors="strict")
    if "\0" in "".join((user, base, folder, *options.values())):
        raise _NamedError(_DATABASE_FORM)
    if not user or not base or "/" in base or parts.fragment:
        raise _NamedError("an address with a user and a database: postgresql://user:password@host:port/database")
    options.pop("target_session_attrs", None)
    return PostgresUrl(
        hosts=tuple(hosts),
        user=user,
        password=Secret(unquote(word, errors="strict")) if colon else None,
        database=base,
        options=tuple(sorted(options.items())),
    )


def _database_host(text: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path or parts.port == 0 or not _is_host(parts.hostname):
        raise _NamedError("an address whose hosts are host:port, separated by commas")
    return parts.hostname, parts.port or default_port


def _is_host(text: str) -> bool:
    """Whether the resolver accepts this name."""
    if ":" in text:
        return ipaddress.ip_address(text).version == 6
    return re.fullmatch(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?", text) is not None


def event_stream(text: str) -> StreamTarget:
    kind, _, rest = text.partition(":")
    name, _, digits = rest.rpartition(":")
    bare = name.removeprefix("[").removesuffix("]")
    with must_be("stdout, the absolute path of a file, syslog:HOST:PORT, syslog+tcp:HOST:PORT or syslog:/dev/log"):
        if text == "stdout":
            return StreamTarget(Transport.STDOUT)
        if text.startswith("/") and not text.endswith("/"):
            return StreamTarget(Transport.FILE, path=text)
        if kind == "syslog" and rest.startswith("/"):
            return StreamTarget(Transport.UNIX, path=rest)
        if kind in {"syslog", "syslog+tcp"} and _is_host(bare.lower()) and (":" in bare) == name.startswith("["):
            return StreamTarget(Transport(kind), host=bare, port=port(digits))
        raise ValueError


schema = matching(
    r"(?!pg_)[a-z_][a-z0-9_]{0,59}", "a name of at most 60 small letters, digits and _, not beginning with pg_"
)


def root_actor(text: str) -> str:
    """No service account may be the root actor: who manages accounts could create its tokens. Every urn of an account
    has this prefix, whatever creates it, so that this is the only place to check it.
    """
    try:
        actor = check_actor(text, "it")
    except Fault as fault:
        raise ValueError(f"a user's urn ({fault.message})") from None
    if actor.startswith(ACCOUNT_PREFIX):
        raise ValueError(
            f"the urn of a person, not of a service account ({ACCOUNT_PREFIX}…), whose tokens others can create"
        )
    return text


def switch(text: str) -> bool:
    if text.lower() in ("on", "true", "1", "yes"):
        return True
    if text.lower() in ("off", "false", "0", "no"):
        return False
    raise ValueError("on or off")


def local_mode(text: str) -> bool | None:
    with must_be("auto, on or off"):
        return None if text.lower() == "auto" else switch(text)


_NETWORKS = "networks such as 10.0.0.0/8,192.168.1.7/32"
networks: Callable[[str], tuple[Network, ...]] = listed(ipaddress.ip_network, _NETWORKS)
peers = listed(lambda word: None if word == "unix" else ipaddress.ip_network(word), f"{_NETWORKS}, or unix")
"""None for callers on the Unix socket."""
headers = listed(
    matching(r"[Xx]-[A-Za-z0-9-]+", ""), "names of headers that begin with X-, such as X-Service-Actor", least=1
)
clients = listed(
    matching(r"[A-Za-z0-9._-]{1,50}", ""), "client ids of letters, digits and . _ -, such as watchword-cli"
)
DURATIONS = {duration.name: duration for duration in Duration if duration is not Duration.NO_EXPIRY}
durations = listed(lambda word: DURATIONS[word.upper()], f"some of {', '.join(DURATIONS)}", least=1)


SMTP_PORTS = {"smtp": 587, "smtps": 465, "smtp+insecure": 25}
_SMTP_FORM = "smtp://[user:password@]host:port (with STARTTLS), smtps://… (TLS) or smtp+insecure://… (without)"


def smtp_url(text: str) -> SmtpUrl:
    """Messages never quote the text, which may hold a password."""
    scheme = text.partition("://")[0]
    with must_be(_SMTP_FORM):
        parts = urlsplit(text)
        name, number = parts.hostname or "", parts.port or SMTP_PORTS[scheme]
        user, password = unquote(parts.username or "", errors="strict"), unquote(parts.password or "", errors="strict")
    if not _is_host(name) or parts.path.strip("/") or parts.query or parts.fragment or bool(user) != bool(password):
        raise ValueError(_SMTP_FORM)
    if user and scheme == "smtp+insecure" and name != "localhost" and not is_loopback(name):
        raise ValueError("an address with TLS: smtp+insecure:// sends no password to other machines")
    return SmtpUrl(scheme, name, number, user or None, Secret(password) if password else None)


def email(text: str) -> str:
    with must_be("an e-mail address such as watchword@example.org"):
        return check_email(text)


def mail_template(text: str) -> str:
    email(text.replace("{name}", "x"))
    if "{name}" not in text:
        raise ValueError("an address with {name}, such as {name}@example.org")
    return text


mail_kinds = listed(KINDS.__getitem__, f"some of {', '.join(KINDS)}")


def days(text: str) -> tuple[int, ...]:
    with must_be("numbers of days from 1 to 3650, such as 30,7,1; or empty"):
        return tuple(sorted({between(1, 3_650)(word) for word in words(text)}, reverse=True))


_INDEX_FORM = "http(s)://[user:password@]host:port[,host:port], without a path"


def index_url(text: str) -> IndexAddress:
    """The scheme and the user before the first host apply to all hosts."""
    first, *others = words(text) or [""]
    with must_be(_INDEX_FORM):
        parts = urlsplit(first)
        where = [parts.netloc.rpartition("@")[2] + parts.path + parts.query + parts.fragment, *others]
        hosts = tuple(_index_host(parts.scheme, one) for one in where)
        user, password = parts.username, parts.password
        if parts.scheme not in ("http", "https") or (user is None) != (password is None):
            raise ValueError
    return IndexAddress(hosts, unquote(user), Secret(unquote(password))) if user and password else IndexAddress(hosts)


def _index_host(scheme: str, text: str) -> str:
    parts = urlsplit(f"{scheme}://{text.rstrip('/')}")
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in text or parts.port == 0:
        raise ValueError
    return parts.geturl()


def index_prefix(text: str) -> str:
    if text and not is_prefix(text):
        raise ValueError("at most 40 small letters, digits and -, beginning with a letter or digit")
    return text


aspects = listed(parse_aspect, "entities and aspects such as dataset.operation,chart.chartUsageStatistics")
