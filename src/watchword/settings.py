"""Settings: one table, and the sole reader of the environment.

A flag's name is the last part of its setting's: `--data-dir` is `WATCHWORD_DATA_DIR`. A flag wins over the
environment. An unknown `WATCHWORD_*` name or a bad value stops the start with a sentence that names it.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from watchword.domain.errors import Fault, OperatorError
from watchword.domain.lifetimes import Duration, Lifetimes
from watchword.domain.secret import Secret
from watchword.domain.urns import check_actor

PREFIX = "WATCHWORD_"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(OperatorError):
    """A setting is unknown or has a bad value; the sentence names it."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    default: str
    help: str
    parse: Callable[[str], Any]
    secret: bool = False

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def _host(text: str) -> str:
    if text.startswith("unix:/") or text == "localhost":
        return text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("an IP address, localhost, or unix:/path/of.sock") from None
    return text


def _port(text: str) -> int:
    return _number(text, 1, 65_535)


def _workers(text: str) -> int:
    return _number(text, 1, 256)


def _max_live(text: str) -> int:
    return _number(text, 1, 10_000_000)


def _days(text: str) -> int:
    return _number(text, 1, 36_500)


def _number(text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"a whole number from {least} to {most}")


def _url(text: str) -> str | None:
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("an address such as https://tokens.example.org")
    return text.rstrip("/")


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _data_dir(text: str) -> Path:
    if not text:
        raise ValueError("a folder")
    return Path(text)


def _database(text: str) -> str | None:
    if not text or (text.startswith("sqlite:///") and len(text) > len("sqlite:///")):
        return text or None
    raise ValueError("sqlite:///path/of/file (other stores come with a later version)")


def _actor(text: str) -> str:
    try:
        return check_actor(text, "it")
    except Fault as fault:
        raise ValueError(f"a user's urn ({fault.message})") from None


def _switch(text: str) -> bool:
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


def _local_mode(text: str) -> bool | None:
    if text.lower() == "auto":
        return None
    try:
        return _switch(text)
    except ValueError:
        raise ValueError("auto, on or off") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in _words(text))
    except ValueError:
        raise ValueError("networks such as 10.0.0.0/8,192.168.1.7/32") from None


def _peers(text: str) -> tuple[Network | None, ...]:
    """Networks, or None for the callers on the Unix socket."""
    try:
        return tuple(None if word == "unix" else _networks(word)[0] for word in _words(text))
    except ValueError as error:
        raise ValueError(f"{error}, or unix") from None


def _headers(text: str) -> tuple[str, ...]:
    words = _words(text)
    if not words or not all(re.fullmatch(r"[Xx]-[A-Za-z0-9-]+", word) for word in words):
        raise ValueError("names of headers that begin with X-, such as X-Service-Actor")
    return tuple(words)


def _durations(text: str) -> tuple[Duration, ...]:
    named = [duration.name for duration in Duration if duration is not Duration.NO_EXPIRY]
    words = _words(text)
    if not words or not set(words) <= set(named):
        raise ValueError(f"some of {', '.join(named)}")
    return tuple(Duration[word] for word in words)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.lower()

    return parse


_ALL_DURATIONS = ",".join(duration.name for duration in Duration if duration is not Duration.NO_EXPIRY)

TABLE: tuple[Setting, ...] = (
    Setting("host", "127.0.0.1", "Address to listen on: an IP address, localhost, or unix:/path/of.sock.", _host),
    Setting("port", "8080", "Port to listen on.", _port),
    Setting("workers", "1", "Worker processes.", _workers),
    Setting("public_url", "", "Address under which others reach this service; also the tokens' issuer.", _url),
    Setting("tls_cert", "", "Certificate chain (PEM) to serve TLS with.", _path),
    Setting("tls_key", "", "Private key (PEM) of that certificate.", _path),
    Setting("data_dir", "./watchword-data", "Folder of the embedded store and master key (mode 0700).", _data_dir),
    Setting("database_url", "", "Store; SQLite in the data folder by default.", _database, secret=True),
    Setting("root_actor", "urn:li:corpuser:admin", "The actor that holds every privilege.", _actor),
    Setting("policy_file", "", "YAML file of policies, put in force at each start.", _path),
    Setting("master_key_file", "", "Key that seals the signing keys; made in the data folder by default.", _path),
    Setting("local_mode", "auto", "Whether X-Service-Actor is believed from loopback: auto, on or off.", _local_mode),
    Setting("trusted_peers", "", "Networks (CIDR), or unix, whose X-Service-Actor is believed.", _peers),
    Setting("trusted_proxies", "", "Networks (CIDR) of proxies whose X-Forwarded-For is believed.", _networks),
    Setting("actor_headers", "X-Service-Actor,X-DataHub-Actor", "Header that names a local caller.", _headers),
    Setting("allowed_durations", _ALL_DURATIONS, "Lifetimes a token may be given.", _durations),
    Setting("allow_no_expiry", "off", "Whether a token may be given NO_EXPIRY.", _switch),
    Setting("max_live_tokens", "10000", "Live tokens one actor may hold.", _max_live),
    Setting("event_days", "400", "Days for which events are kept.", _days),
    Setting("log_level", "info", "debug, info, warning or error.", _one_of("debug", "info", "warning", "error")),
    Setting(
        "access_log",
        "default",
        "Requests to log: all, off, or default (all but successful /auth and probes).",
        _one_of("all", "default", "off"),
    ),
)  # fmt: skip

# Names of clients and tests, which the server leaves alone.
_OTHERS = {"WATCHWORD_URL", "WATCHWORD_TOKEN", "WATCHWORD_TEST_STRICT"}
# What container platforms inject for a service called watchword.
_INJECTED = re.compile(r"WATCHWORD_(SERVICE_.*|PORT_\d+_(TCP|UDP).*)")


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    port: int
    workers: int
    public_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    data_dir: Path
    database_url: str | None
    root_actor: str
    policy_file: Path | None
    master_key_file: Path | None
    local_mode: bool | None
    trusted_peers: tuple[Network | None, ...]
    trusted_proxies: tuple[Network, ...]
    actor_headers: tuple[str, ...]
    allowed_durations: tuple[Duration, ...]
    allow_no_expiry: bool
    max_live_tokens: int
    event_days: int
    log_level: str
    access_log: str

    @property
    def store_path(self) -> Path:
        if self.database_url is not None:
            return Path(self.database_url.removeprefix("sqlite:///"))
        return self.data_dir / "watchword.db"

    @property
    def master_key_path(self) -> Path:
        return self.master_key_file or self.data_dir / "master.key"

    @property
    def socket_path(self) -> Path | None:
        return Path(self.host.removeprefix("unix:")) if self.host.startswith("unix:") else None

    @property
    def address(self) -> str:
        """The host as a number: `localhost` is 127.0.0.1 and nothing else. A Unix socket stays as it is."""
        return "127.0.0.1" if self.host == "localhost" else self.host

    @property
    def endpoint(self) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
        """Where it listens, in the words of the socket module."""
        if self.socket_path is not None:
            return socket.AF_UNIX, str(self.socket_path)
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET, (self.address, self.port)

    @property
    def is_loopback(self) -> bool:
        return self.socket_path is None and ipaddress.ip_address(self.address).is_loopback

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def listens_at(self) -> str:
        if self.socket_path is not None:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def issuer(self) -> str:
        return self.public_url or self.listens_at

    @property
    def local_mode_on(self) -> bool:
        return self.local_mode_off_because is None

    @property
    def local_mode_off_because(self) -> str | None:
        """A silent proxy on this host cannot be told from a local caller, so any sign of one turns local mode off."""
        if not self.is_loopback:
            return "it does not listen on loopback"
        if self.local_mode is not None:
            return None if self.local_mode else "WATCHWORD_LOCAL_MODE says so"
        if self.public_url is not None:
            return "WATCHWORD_PUBLIC_URL is set"
        return "WATCHWORD_TRUSTED_PROXIES is set" if self.trusted_proxies else None

    @property
    def told(self) -> dict[str, str]:
        """Each setting that is no secret as text, by its variable, for the event that a change of it leaves."""
        return {setting.variable: _text(getattr(self, setting.name)) for setting in TABLE if not setting.secret}

    @property
    def lifetimes(self) -> Lifetimes:
        return Lifetimes.of(self.allowed_durations, allow_no_expiry=self.allow_no_expiry)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_text(part) for part in value)
    if isinstance(value, Duration):
        return value.name
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


def load(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from flags (by setting name), the environment and the defaults, in this order."""
    _refuse_unknown(environment)
    settings = Settings(**{setting.name: _value(setting, flags, environment) for setting in TABLE})
    _check_together(settings)
    return settings


def load_client(environment: Mapping[str, str] = os.environ) -> tuple[str | None, Secret[str] | None]:
    """For commands that speak to a server: its address and the caller's token, where they are set."""
    _refuse_unknown(environment)
    url, token = environment.get("WATCHWORD_URL"), environment.get("WATCHWORD_TOKEN")
    return url or None, Secret(token.strip()) if token else None


def _value(setting: Setting, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Any:
    text, source = flags.get(setting.name), setting.flag
    if text is None:
        text, source = environment.get(setting.variable), setting.variable
        if text is not None and setting.name == "port" and text.startswith("tcp://"):
            text = None
    if text is None:
        text, source = setting.default, setting.variable
    try:
        return setting.parse(text.strip())
    except ValueError as error:
        raise SettingsError(f"{source} must be {error}.") from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    for sentence in _unknown(environment):
        raise SettingsError(sentence)


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = {setting.variable for setting in TABLE} | _OTHERS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _INJECTED.fullmatch(name):
            yield f"{name} is not a setting of Watchword. See: watchword serve --help"


def _check_together(settings: Settings) -> None:
    for sentence in _contradictions(settings):
        raise SettingsError(sentence)


def _contradictions(settings: Settings) -> Iterator[str]:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        yield "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must be given together."
    if settings.local_mode and not settings.is_loopback:
        yield "WATCHWORD_LOCAL_MODE must be off, or WATCHWORD_HOST a loopback address."
    if None in settings.trusted_peers and settings.socket_path is None:
        yield "WATCHWORD_TRUSTED_PEERS may name unix only when WATCHWORD_HOST is unix:/path/of.sock."


def load_anyway(
    flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, list[str], list[str]]:
    """For looking at an installation: the settings with the default in place of each bad one, the sentences about
    those, and the names of all that were given.
    """
    sentences, values = list(_unknown(environment)), {}
    for setting in TABLE:
        try:
            values[setting.name] = _value(setting, flags, environment)
        except SettingsError as error:
            sentences.append(str(error))
            values[setting.name] = _value(setting, {}, {})
    settings = Settings(**values)
    given = [s.variable for s in TABLE if flags.get(s.name) is not None or s.variable in environment]
    return settings, [*sentences, *_contradictions(settings)], given
