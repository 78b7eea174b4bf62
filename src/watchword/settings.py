"""Settings: what the table of them says, and the sole reader of the environment.

A flag's name is the last part of its setting's: `--data-dir` is `WATCHWORD_DATA_DIR`. A flag wins over the
environment. An unknown `WATCHWORD_*` name or a bad value stops the start with a sentence that names it.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from watchword import values as read
from watchword.domain.errors import OperatorError
from watchword.domain.indices import Aspect
from watchword.domain.lifetimes import Duration, Lifetimes
from watchword.domain.secret import Secret
from watchword.domain.store_urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.domain.token_limits import Network
from watchword.settings_table import PREFIX, TABLE, Setting
from watchword.values import IndexAddress, ListenAddress

DEFAULT_URL = "http://127.0.0.1:8080"
"""Where commands look for a server if nothing is set."""
_LARGEST = 65_536
"""Characters that are read of a file with a secret in it."""
_NEEDS_KEY = (
    "WATCHWORD_MASTER_KEY_FILE must be given with PostgreSQL: the same key on every instance. "
    "Make one: watchword keys master FILE"
)


Endpoint = tuple[socket.AddressFamily, str | tuple[str, int]]
"""Where to listen, in the words of the socket module."""


class SettingsError(OperatorError):
    """A setting is unknown or has a bad value; the sentence names it."""


class StoreUrlError(SettingsError):
    """There is no store at what the settings name: to whoever starts it, as when it cannot be reached."""


# Names of clients and tests, which the server leaves alone.
_OTHERS = {"WATCHWORD_URL", "WATCHWORD_TOKEN", "WATCHWORD_PROFILE", "WATCHWORD_TEST_STRICT"}
# What container platforms inject for a service called watchword.
_INJECTED = re.compile(r"WATCHWORD_(SERVICE_.*|PORT_\d+_(TCP|UDP).*)")


class ExposedSecretError(SettingsError):
    """A password in a flag: every user of the machine can read it in the list of processes."""


# Also in an address that is wrong otherwise.
_WITH_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]+@|[?&]password=")


def _refuse_password(flag: str, text: str, instead: str) -> None:
    if _WITH_PASSWORD.search(text):
        raise ExposedSecretError(
            f"{flag} must not hold a password, which every user of this machine can read in the list of processes. "
            f"{instead}"
        )


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    port: int
    workers: int
    metrics_address: ListenAddress | None
    public_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    data_dir: Path
    database_url: StoreUrl | None
    database_schema: str
    database_timeout: int
    database_pool: int
    index_url: IndexAddress | None
    index_prefix: str
    index_api_key: Secret[str] | None
    index_ca_file: Path | None
    index_verify_tls: bool
    index_timeout: int
    index_rate: int
    known_aspects: tuple[Aspect, ...]
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
    actor_processor_percent: int
    event_days: int
    dead_token_days: int
    console: bool
    session_hours: int
    log_level: str
    access_log: str

    @property
    def store_url(self) -> StoreUrl:
        """The SQLite file or PostgreSQL database that holds the store."""
        address = self.database_url
        if isinstance(address, PostgresUrl):
            return replace(
                address,
                schema=self.database_schema,
                timeout=self.database_timeout,
                pool=self.database_pool,
                password_source=_password_source(),
            )
        return address or SqliteUrl(self.data_dir / "watchword.db")

    @property
    def is_shared(self) -> bool:
        """Whether other instances may be at work on the same store."""
        return isinstance(self.database_url, PostgresUrl)

    @property
    def index_path(self) -> Path:
        """The file of the embedded search index."""
        return self.data_dir / "index.db"

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
    def endpoint(self) -> Endpoint:
        if self.socket_path is not None:
            return socket.AF_UNIX, str(self.socket_path)
        return _endpoint(self.address, self.port)

    @property
    def metrics_endpoint(self) -> Endpoint | None:
        where = self.metrics_address
        return None if where is None else _endpoint(where.host, where.port)

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
    def sends_hsts(self) -> bool:
        """Whether browsers come by TLS, ours or a proxy's. For localhost HSTS would break every other program there."""
        issuer = urlsplit(self.issuer)
        return issuer.scheme == "https" and not (issuer.hostname or "").endswith("localhost")

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
        if self.is_shared:
            return "WATCHWORD_DATABASE_URL names a database that other instances share"
        if self.public_url is not None:
            return "WATCHWORD_PUBLIC_URL is set"
        return "WATCHWORD_TRUSTED_PROXIES is set" if self.trusted_proxies else None

    @property
    def told(self) -> dict[str, str]:
        """Each setting that is no secret as text, by its variable, for the event that a change of it leaves. Instances
        on one store, each with its own port, are no change. Besides these, what the start came to.
        """
        told = [setting for setting in TABLE if not setting.secret and not (setting.own and self.is_shared)]
        came_to = {"issuer": self.issuer, "listensAt": self.listens_at}
        return {setting.variable: _text(getattr(self, setting.name)) for setting in told} | came_to

    @property
    def lifetimes(self) -> Lifetimes:
        return Lifetimes.of(self.allowed_durations, allow_no_expiry=self.allow_no_expiry)


def _password_source() -> str:
    """Where the driver takes a database password from that the URL does not have. PGPASSWORD wins, as in libpq."""
    return "PGPASSWORD" if "PGPASSWORD" in os.environ else os.environ.get("PGPASSFILE", "~/.pgpass")


def bind_error(endpoint: Endpoint) -> OSError | None:
    """Why a server cannot listen there; None if it can."""
    family, address = endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return error
    return None


def _endpoint(host: str, port: int) -> Endpoint:
    return socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port)


def _text(value: Any) -> str:
    if isinstance(value, tuple) and not isinstance(value, Aspect):
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


def read_store_url(flag: str, url: str, schema_flag: str, schema: str | None, settings: Settings) -> StoreUrl:
    """A store named by flags of a command, with everything else as it is set."""
    _refuse_password(flag, url, "Put it into ~/.pgpass or the file that PGPASSFILE names (mode 0600).")
    try:
        place = read.database(url.strip())
    except ValueError as error:
        raise SettingsError(f"{flag} must be {error}.") from None
    if place is None:
        raise SettingsError(f"{flag} must not be empty.")
    try:
        named = settings.database_schema if schema is None else read.schema(schema.strip())
    except ValueError as error:
        raise SettingsError(f"{schema_flag} must be {error}.") from None
    return replace(settings, database_url=place, database_schema=named).store_url


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """For commands that speak to a server: where it is and who is calling, as far as that is set."""

    url: str | None
    token: Secret[str] | None
    profile: str | None
    folder: Path | None
    """Where people's own settings lie; None for who has no home."""


def server_url(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where commands find the server, if that is set."""
    return environment.get("WATCHWORD_URL") or None


def load_client(environment: Mapping[str, str] = os.environ) -> ClientSettings:
    _refuse_unknown(environment)
    token = environment.get("WATCHWORD_TOKEN")
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path's raises where there is none
    own = Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config")
    return ClientSettings(
        url=server_url(environment),
        token=Secret(token.strip()) if token else None,
        profile=environment.get("WATCHWORD_PROFILE") or None,
        folder=own / "watchword" if own.is_absolute() else None,
    )


def _value(setting: Setting, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Any:
    text, source = flags.get(setting.name), setting.flag
    if text is not None and setting.secret:
        _refuse_password(source, text, f"Set {setting.variable}, or name a file with it in {setting.file_variable}.")
    if text is None:
        text, source = environment.get(setting.variable), setting.variable
        if text is not None and setting.name == "port" and text.startswith("tcp://"):
            text = None
        if setting.secret and (path := environment.get(setting.file_variable)) is not None:
            text, source = _in_file(setting, path, text), setting.file_variable
    if text is None:
        text, source = setting.default, setting.variable
    elif setting.name == "database_url" and not text.strip():
        # What a deployment says whose secret is missing: it must not become an instance with a store of its own.
        raise StoreUrlError(f"{source} must not be empty. Leave it out for SQLite in the data folder.")
    try:
        return setting.parse(text.strip())
    except ValueError as error:
        kind = StoreUrlError if setting.name == "database_url" else SettingsError
        raise kind(f"{source} must be {error}.") from None


def _in_file(setting: Setting, path: str, text: str | None) -> str:
    kind = StoreUrlError if setting.name == "database_url" else SettingsError
    if text is not None:
        raise kind(f"{setting.variable} and {setting.file_variable} must not be given together.")
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_LARGEST)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise kind(f"{setting.file_variable} must name a file that can be read: {path!r} ({why}).") from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    for sentence in _unknown(environment):
        raise SettingsError(sentence)


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = {setting.variable for setting in TABLE} | {one.file_variable for one in TABLE if one.secret} | _OTHERS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _INJECTED.fullmatch(name):
            yield f"{name} is not a setting of Watchword. See: watchword serve --help"


def _check_together(settings: Settings) -> None:
    for sentence in _contradictions(settings):
        raise SettingsError(sentence)
    if settings.is_shared and settings.master_key_file is None:
        raise StoreUrlError(_NEEDS_KEY)


def _contradictions(settings: Settings) -> Iterator[str]:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        yield "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must be given together."
    if settings.metrics_address and settings.socket_path is None and settings.metrics_address.port == settings.port:
        yield "WATCHWORD_METRICS_ADDRESS must have another port than WATCHWORD_PORT."
    if settings.local_mode and not settings.is_loopback:
        yield "WATCHWORD_LOCAL_MODE must be off, or WATCHWORD_HOST a loopback address."
    if None in settings.trusted_peers and settings.socket_path is None:
        yield "WATCHWORD_TRUSTED_PEERS may name unix only when WATCHWORD_HOST is unix:/path/of.sock."
    if settings.index_api_key is not None and settings.index_url is not None and settings.index_url.user is not None:
        yield "WATCHWORD_INDEX_API_KEY and a user in WATCHWORD_INDEX_URL must not be given together."
    if settings.index_api_key is not None and settings.index_url is None:
        yield "WATCHWORD_INDEX_API_KEY may be given only with WATCHWORD_INDEX_URL."


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
        except ExposedSecretError:
            raise
        except SettingsError as error:
            sentences.append(str(error))
            values[setting.name] = _value(setting, {}, {})
    settings = Settings(**values)
    given = [s.variable for s in TABLE if flags.get(s.name) is not None or s.variable in environment]
    given += [s.file_variable for s in TABLE if s.secret and s.file_variable in environment]
    if settings.is_shared and settings.master_key_file is None:
        sentences.append(_NEEDS_KEY)
    return settings, [*sentences, *_contradictions(settings)], given
