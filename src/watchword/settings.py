"""Settings: one table of them, and the only reader of the environment.

A flag's name is the last part of its setting's: `--data-dir` is `WATCHWORD_DATA_DIR`. A flag wins over the environment.
An unknown `WATCHWORD_*` name or a bad value stops the start with a message that names it.
"""

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from watchword import setting_values as values
from watchword.basics.errors import OperatorError
from watchword.basics.networks import Endpoint, Network, is_loopback
from watchword.basics.secret import Secret
from watchword.basics.times import Duration
from watchword.database.urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.index.indices import DATAHUB_SERIES, Aspect, IndexNames
from watchword.journal.events import StreamTarget
from watchword.notices.mail_rules import KINDS, MailKind, MailRules, SmtpUrl
from watchword.setting_values import DataHubUrl, IndexAddress, ListenAddress, optional
from watchword.signin.session_rules import ClaimRules, SessionLimits
from watchword.tokens.lifetimes import Lifetimes

MAX_SECRET_CHARACTERS = 65_536
_NEEDS_KEY = (
    "WATCHWORD_MASTER_KEY_FILE must be set with PostgreSQL: the same key on every instance, and for a copy the key of "
    "its source. Only for a new store, create one: watchword key new-master FILE"
)


_WHEN_UNSET = {"database_url": "use SQLite in the data folder", "datahub_salt": "accept no tokens of DataHub"}


class SettingsError(OperatorError):
    """A setting is unknown or has a bad value. The message names it."""


class StoreUrlError(SettingsError):
    """The settings name no store. The exit code is that of a store that cannot be reached."""


# Variables of clients and tests.
_OTHERS = {"WATCHWORD_URL", "WATCHWORD_TOKEN", "WATCHWORD_PROFILE", "WATCHWORD_TEST_STRICT"}
# Variables that Kubernetes sets for services in the namespace whose names begin with watchword.
_LINKED = re.compile(
    r"WATCHWORD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINKED_PORT, _LINKED_VALUE = re.compile(r"WATCHWORD_(\w+_)?PORT"), re.compile(r"(tcp|udp|sctp)://.*")


class ExposedSecretError(SettingsError):
    """A password in a flag, which every user of the machine can read in the list of processes."""


# Matches invalid addresses too.
_WITH_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]+@|[?&]password=")


def _reject_password(flag: str, text: str, instead: str) -> None:
    if _WITH_PASSWORD.search(text):
        raise ExposedSecretError(
            f"{flag} must not hold a password, which every user of this machine can read in the list of processes. "
            f"{instead}"
        )


PREFIX = "WATCHWORD_"
T = TypeVar("T")


class Kind(Enum):
    SHARED = auto()
    OWN = auto()
    """Instances that share a store may differ in it."""
    WITH_SECRET = auto()
    """May hold a password."""
    SECRET = auto()
    """Is nothing else: no flag, because every user of the machine can read flags in the list of processes."""


OWN, WITH_SECRET, SECRET = Kind.OWN, Kind.WITH_SECRET, Kind.SECRET


@dataclass(frozen=True, slots=True)
class Setting:
    default: str
    parse: Callable[[str], Any]
    help: str
    kind: Kind
    name: str = ""

    @property
    def secret(self) -> bool:
        return self.kind in (WITH_SECRET, SECRET)

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def file_variable(self) -> str:
        """Names a file that holds a secret, which is safer there than in the environment."""
        return f"{self.variable}_FILE"

    @property
    def flag(self) -> str | None:
        return None if self.kind is SECRET else "--" + self.name.replace("_", "-")


def setting(default: str, parse: Callable[[str], T], text: str, kind: Kind = Kind.SHARED) -> T:
    """A field of `Settings`. `text` is its help."""
    return cast("T", field(metadata={"setting": Setting(default, parse, text, kind)}))


@dataclass(frozen=True, slots=True)
class Settings:
    # fmt: off
    host: str = setting("127.0.0.1", values.host,
        "Address to listen on: an IP address, localhost, or unix:/path/of.sock.", OWN)
    port: int = setting("8080", values.port, "Port to listen on.", OWN)
    workers: int = setting("1", values.between(1, 256), "Worker processes.", OWN)
    metrics_address: ListenAddress | None = setting("", optional(values.listen_address),
        "Second address to listen on, for /metrics and the parts of /health. They are then served only there.", OWN)
    public_url: str | None = setting("", optional(values.url),
        "URL of this service for clients; also the issuer of tokens.")
    tls_cert: Path | None = setting("", optional(Path), "Certificate chain (PEM) for TLS.", OWN)
    tls_key: Path | None = setting("", optional(Path), "Private key (PEM) of the certificate.", OWN)
    data_dir: Path = setting("./watchword-data", values.data_dir,
        "Folder of the SQLite store and the master key (mode 0700).", OWN)
    database_url: StoreUrl | None = setting("", optional(values.database),
        "URL of a PostgreSQL database. Default: SQLite in the data folder.", WITH_SECRET)
    database_schema: str = setting("watchword", values.schema, "Database schema of the store.")
    database_timeout: int = setting("2", values.between(1, 600), "Seconds to wait for an answer of the database.", OWN)
    database_pool: int = setting("8", values.between(2, 200),
        "Database connections of a worker, besides two for verification.", OWN)
    database_reads: str = setting("primary", values.one_of("primary", "confirmed"),
        "On PostgreSQL, which reads are used: primary (from a server that accepts writes), or confirmed (the "
        "synchronous standbys have also confirmed that it is still the primary).")
    database_failover: str = setting("manual", values.one_of("manual", "patroni"),
        "Who promotes a standby: manual, or patroni (in its synchronous_mode).")
    index_url: IndexAddress | None = setting("", optional(values.index_url),
        "URL of the search index. Default: an embedded index.", WITH_SECRET)
    index_prefix: str = setting("", values.index_prefix, "Prefix of index names, before an underscore.")
    index_api_key: Secret[str] | None = setting("", optional(Secret), "API key for the search index.", SECRET)
    index_ca_file: Path | None = setting("", optional(Path), "Certificates (PEM) to verify the search index with.", OWN)
    index_verify_tls: bool = setting("on", values.switch, "Verify the certificate of the search index.")
    index_timeout: int = setting("10", values.between(1, 600),
        "Seconds to wait for an answer of the search index.", OWN)
    index_rate: int = setting("10000", values.between(0, 10_000_000),
        "Rows per second that a truncation deletes or copies; 0: no limit.")
    known_aspects: tuple[Aspect, ...] = setting(",".join(DATAHUB_SERIES), values.aspects,
        "Aspects that are known before they have an index.")
    root_actor: str = setting("urn:li:corpuser:admin", values.root_actor,
        "Actor that has every privilege; not a service account.")
    policy_file: Path | None = setting("", optional(Path), "YAML file of policies to apply at each start.", OWN)
    master_key_file: Path | None = setting("", optional(Path),
        "Key that seals the signing keys. Default: created in the data folder; required for PostgreSQL.", OWN)
    trusted_group: int | None = setting("", optional(values.trusted_group),
        "Number of a group that is this service's alone, such as a pod's fsGroup: it may read and write the files of "
        "store and keys.", OWN)
    datahub_salt: Secret[bytes] | None = setting("", optional(values.secret_text),
        "DataHub's salt (DATAHUB_TOKEN_SERVICE_SALT), with which its imported tokens are found.", SECRET)
    datahub_url: DataHubUrl | None = setting("", optional(values.datahub_url),
        "DataHub's database or export file, for `watchword import datahub`.", SECRET)
    local_mode: bool | None = setting("auto", values.local_mode,
        "Let processes of the server's user name an actor: auto, on or off.")
    trusted_peers: tuple[Network | None, ...] = setting("", values.peers,
        "Networks (CIDR), or unix, whose X-Service-Actor header is trusted.")
    trusted_proxies: tuple[Network, ...] = setting("", values.networks,
        "Networks (CIDR) of proxies whose X-Forwarded-For header is trusted.")
    actor_headers: tuple[str, ...] = setting("X-Service-Actor,X-DataHub-Actor", values.headers,
        "Headers that name the actor of a local caller.")
    allowed_durations: tuple[Duration, ...] = setting(",".join(values.DURATIONS), values.durations,
        "Lifetimes that tokens may have.")
    allow_no_expiry: bool = setting("off", values.switch, "Allow tokens that never expire (NO_EXPIRY).")
    max_live_tokens: int = setting("10000", values.between(1, 10_000_000), "Live tokens that one actor may have.")
    actor_processor_percent: int = setting("5", values.between(0, 100),
        "Percent of a processor per worker for documents, searches, answers, writes of an actor; 0: no limit.", OWN)
    actor_daily_changes: int = setting("10000", values.between(0, 1_000_000_000),
        "Changes, other than to create and revoke tokens, that one actor may make in a day, half of them at once; 0: "
        "no limit.")
    webhook_allowed_networks: tuple[Network, ...] = setting("", values.networks,
        "Networks (CIDR) that are not public and that webhooks may be sent to, also by http.")
    webhook_allow_http: bool = setting("off", values.switch, "Allow webhooks to public addresses by http.")
    event_days: int = setting("400", values.between(1, 36_500), "Days to keep events.")
    dead_token_days: int = setting("90", values.between(1, 36_500), "Days to keep expired and revoked tokens.")
    console: bool = setting("on", values.switch, "Serve the web console and its sign-in.", OWN)
    session_hours: int = setting("12", values.between(1, 8_760), "Hours until a console session ends.")
    device_clients: tuple[str, ...] = setting("watchword-cli", values.clients,
        "Client ids that may start device authorization, as `watchword login` does. Empty: none.")
    login_days: int = setting("30", values.between(1, 3_650),
        "Days that a token from device authorization is valid; never over the longest allowed lifetime.")
    session_idle_minutes: int = setting("120", values.between(2, 525_600),
        "Minutes without a request until a console session ends.")
    oidc_issuer: str | None = setting("", optional(values.oidc_issuer),
        "Issuer of the OpenID Connect identity provider that people sign in at.")
    oidc_client_id: str = setting("", values.one_line, "Client id of this service at the identity provider.")
    oidc_client_secret: Secret[str] | None = setting("", optional(values.secret_line),
        "Client secret at the identity provider; none for a public client.", SECRET)
    oidc_scopes: str = setting("openid profile email", values.oidc_scopes,
        "Scopes to ask of the identity provider, openid among them.")
    oidc_actor: str = setting("urn:li:corpuser:{preferred_username}", values.actor_template,
        "Template of an actor's urn: {claim} stands for a claim.")
    oidc_groups_claim: str | None = setting("", optional(values.claim_name),
        "Claim with the groups of a person. Without it, sign-ins bring no groups.")
    oidc_group: str = setting("urn:li:corpGroup:{group}", values.group_template,
        "Template of the urn of a group of the identity provider.")
    oidc_groups_days: int = setting("0", values.between(0, 36_500),
        "Days without a sign-in until an actor loses the groups of the identity provider; 0: never.")
    oidc_allowed: tuple[tuple[str, str], ...] = setting("", values.claim_values,
        "Claims that must hold to sign in, such as hd=example.org or groups=staff.")
    event_stream: StreamTarget | None = setting("", optional(values.event_stream),
        "Where to send each event as a JSON line: stdout, the absolute path of a file, syslog:HOST:PORT, "
        "syslog+tcp:HOST:PORT or syslog:/dev/log.", OWN)
    expiry_notice_days: tuple[int, ...] = setting("30,7,1", values.days,
        "Days before a token expires at which an event token.expiring is written. Empty: none.")
    smtp_url: SmtpUrl | None = setting("", optional(values.smtp_url),
        "Mail server: smtp://user:password@host:587 (STARTTLS), smtps:// or smtp+insecure://. Default: no "
        "mail.", WITH_SECRET)
    smtp_from: str | None = setting("", optional(values.email), "Address that mail comes from.")
    smtp_ca_file: Path | None = setting("", optional(Path), "Certificates (PEM) to verify the mail server with.", OWN)
    mail_template: str | None = setting("", optional(values.mail_template),
        "Address of a person without one in the directory, such as {name}@example.org.")
    mail_kinds: tuple[MailKind, ...] = setting(",".join(KINDS), values.mail_kinds, "Kinds of mail to send.")
    log_level: str = setting("info", values.one_of("debug", "info", "warning", "error"),
        "Log level: debug, info, warning or error.", OWN)
    access_log: str = setting("default", values.one_of("all", "default", "off"),
        "Requests to log: all, off, or default (all but successful /auth and probes).", OWN)
    # fmt: on
    is_root_named: bool = False
    """Whether a flag or the environment names the root actor."""

    @property
    def session_limits(self) -> SessionLimits:
        return SessionLimits(self.session_hours, self.session_idle_minutes)

    @property
    def claim_rules(self) -> ClaimRules:
        return ClaimRules(
            actor=self.oidc_actor,
            root_actor=self.root_actor,
            is_root_named=self.is_root_named,
            groups_claim=self.oidc_groups_claim,
            group=self.oidc_group,
            allowed=self.oidc_allowed,
        )

    @property
    def mail_rules(self) -> MailRules:
        return MailRules(frozenset(self.mail_kinds), self.mail_template)

    @property
    def store_url(self) -> StoreUrl:
        address = self.database_url
        if isinstance(address, PostgresUrl):
            return replace(
                address,
                schema=self.database_schema,
                timeout=self.database_timeout,
                pool=self.database_pool,
                reads_confirmed=self.database_reads == "confirmed",
                patroni=self.database_failover == "patroni",
                password_source=_password_source(),
            )
        return address or SqliteUrl(self.data_dir / "watchword.db")

    @property
    def is_shared(self) -> bool:
        """Whether other instances may use the same store."""
        return isinstance(self.database_url, PostgresUrl)

    @property
    def index_path(self) -> Path:
        return self.data_dir / "index.db"

    @property
    def index_names(self) -> IndexNames:
        return IndexNames(self.index_prefix, self.known_aspects)

    @property
    def master_key_path(self) -> Path:
        return self.master_key_file or self.data_dir / "master.key"

    @property
    def socket_path(self) -> Path | None:
        return Path(self.host.removeprefix("unix:")) if self.host.startswith("unix:") else None

    @property
    def address(self) -> str:
        """The host, with `localhost` as 127.0.0.1."""
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
        return is_loopback(self.address)

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
        """Whether browsers use TLS, ours or a proxy's. For localhost HSTS would break every other program there."""
        issuer = urlsplit(self.issuer)
        return issuer.scheme == "https" and not (issuer.hostname or "").endswith("localhost")

    @property
    def local_mode_on(self) -> bool:
        return self.local_mode_off_because is None

    @property
    def local_mode_off_because(self) -> str | None:
        """A request from a proxy on this host may look local, so any sign of a proxy turns local mode off."""
        if not self.is_loopback:
            return "the service does not listen on loopback"
        if self.local_mode is not None:
            return None if self.local_mode else "WATCHWORD_LOCAL_MODE is off"
        if self.is_shared:
            return "WATCHWORD_DATABASE_URL names a database that other instances share"
        if self.public_url is not None:
            return "WATCHWORD_PUBLIC_URL is set"
        return "WATCHWORD_TRUSTED_PROXIES is set" if self.trusted_proxies else None

    @property
    def audited_values(self) -> dict[str, str]:
        """Settings whose changes leave an audit event, by variable, without secrets and without what instances of one
        store may differ in; and the resulting issuer and address.
        """
        audited = [setting for setting in TABLE if not setting.secret and not (setting.kind is OWN and self.is_shared)]
        results = {"issuer": self.issuer, "listensAt": self.listens_at}
        return {setting.variable: _text(getattr(self, setting.name)) for setting in audited} | results

    @property
    def has_devices(self) -> bool:
        """Whether terminals may ask for a token: a browser must reach the page where they are approved."""
        return self.console and bool(self.device_clients) and bool(urlsplit(self.issuer).hostname)

    @property
    def lifetimes(self) -> Lifetimes:
        return Lifetimes.of(self.allowed_durations, allow_no_expiry=self.allow_no_expiry)


TABLE: tuple[Setting, ...] = tuple(
    replace(field.metadata["setting"], name=field.name) for field in fields(Settings) if field.metadata
)


def _password_source() -> str:
    """Where the driver finds a password that is not in the URL. PGPASSWORD wins, as in libpq."""
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
    if isinstance(value, MailKind):
        return str(value.value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


def helper_environment() -> dict[str, str]:
    """The environment for a process that needs no setting and no secret: how Python runs, and which CAs it trusts."""
    needed = ("FAKETIME", "LD_", "LOCALDOMAIN", "PATH", "PYTHON", "RES_OPTIONS", "SSL_CERT_")
    return {name: value for name, value in os.environ.items() if name.startswith(needed)}


def load(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from flags (by setting name), the environment and the defaults; the first wins."""
    settings, errors = _load(flags, environment)
    for error in errors:
        raise error
    return settings


def load_with_defaults(flags: Mapping[str, str | None]) -> tuple[Settings, list[str], list[str]]:
    """For `doctor`: the settings with the default in place of each bad value, the messages about bad values, and the
    names of all that were set.
    """
    settings, errors = _load(flags, os.environ)
    given = [s.variable for s in TABLE if flags.get(s.name) is not None or s.variable in os.environ]
    given += [s.file_variable for s in TABLE if s.secret and s.file_variable in os.environ]
    return settings, [str(error) for error in errors], given


def _load(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[Settings, list[SettingsError]]:
    errors, loaded = [SettingsError(message) for message in _unknown(environment)], {}
    for setting in TABLE:
        try:
            loaded[setting.name] = _value(setting, flags, environment)
        except ExposedSecretError:
            raise
        except SettingsError as error:
            errors.append(StoreUrlError(str(error)) if setting.name == "database_url" else error)
            loaded[setting.name] = _value(setting, {}, {})
    is_root_named = flags.get("root_actor") is not None or "WATCHWORD_ROOT_ACTOR" in environment
    settings = Settings(**loaded, is_root_named=is_root_named)
    errors += [SettingsError(message) for message in _contradictions(settings)]
    if settings.is_shared and settings.master_key_file is None:
        errors.append(StoreUrlError(_NEEDS_KEY))
    return settings, errors


def read_store_url(flag: str, url: str, schema_flag: str, schema: str | None, settings: Settings) -> StoreUrl:
    """The store that flags of a command name, with the other settings."""
    _reject_password(flag, url, "Put it into ~/.pgpass or the file that PGPASSFILE names (mode 0600).")
    if not url.strip():
        raise SettingsError(f"{flag} must not be empty.")
    store_url = _parsed(flag, url, values.database)
    named = settings.database_schema if schema is None else _parsed(schema_flag, schema, values.schema)
    return replace(settings, database_url=store_url, database_schema=named).store_url


def read_datahub_url(flag: str, url: str) -> DataHubUrl:
    """DataHub's database or export file that a flag names."""
    _reject_password(flag, url, "Set WATCHWORD_DATAHUB_URL, or name a file with it in WATCHWORD_DATAHUB_URL_FILE.")
    return _parsed(flag, url, values.datahub_url)


def _value(setting: Setting, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Any:
    text, source = flags.get(setting.name), setting.flag or setting.variable
    if text is not None and setting.secret:
        _reject_password(source, text, f"Set {setting.variable}, or name a file with it in {setting.file_variable}.")
    if text is None:
        text, source = environment.get(setting.variable), setting.variable
        if text is not None and _is_service_link(source, text):
            text = None
        if setting.secret and (path := environment.get(setting.file_variable)) is not None:
            if text is not None:
                raise SettingsError(f"{setting.variable} and {setting.file_variable} must not be set together.")
            text, source = _in_file(setting.file_variable, path), setting.file_variable
    if text is None:
        text, source = setting.default, setting.variable
    elif setting.name in _WHEN_UNSET and not text.strip():
        # A deployment with a missing secret must not start on a new, empty store, nor reject every imported token.
        raise SettingsError(f"{source} must not be empty. Unset it to {_WHEN_UNSET[setting.name]}.")
    return _parsed(source, text, setting.parse)


def _parsed(source: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text.strip())
    except ValueError as problem:
        raise SettingsError(f"{source} must be {problem}.") from None


def _in_file(variable: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MAX_SECRET_CHARACTERS)
    except (OSError, UnicodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise SettingsError(f"{variable} must name a file that can be read: {path!r} ({reason}).") from None


def reject_unknown() -> None:
    for message in _unknown(os.environ):
        raise SettingsError(message)


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = {setting.variable for setting in TABLE} | {one.file_variable for one in TABLE if one.secret} | _OTHERS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _is_service_link(name, environment[name]):
            yield f"{name} is not a setting of Watchword. See: watchword serve --help"


def _is_service_link(name: str, value: str) -> bool:
    """By its shape: the names of the services are the cluster's."""
    is_port = _LINKED_PORT.fullmatch(name) and _LINKED_VALUE.fullmatch(value)
    return bool(is_port or _LINKED.fullmatch(name))


TOGETHER = ("tls_cert", "tls_key"), ("oidc_issuer", "oidc_client_id"), ("smtp_url", "smtp_from")


def _contradictions(settings: Settings) -> Iterator[str]:
    for one, other in TOGETHER:
        if bool(getattr(settings, one)) != bool(getattr(settings, other)):
            yield f"{PREFIX}{one.upper()} and {PREFIX}{other.upper()} must be set together."
    if settings.metrics_address and settings.socket_path is None and settings.metrics_address.port == settings.port:
        yield "WATCHWORD_METRICS_ADDRESS must have another port than WATCHWORD_PORT."
    if settings.local_mode and not settings.is_loopback:
        yield "WATCHWORD_LOCAL_MODE must be off, or WATCHWORD_HOST a loopback address."
    if None in settings.trusted_peers and settings.socket_path is None:
        yield "WATCHWORD_TRUSTED_PEERS may name unix only when WATCHWORD_HOST is unix:/path/of.sock."
    if settings.index_api_key is not None and settings.index_url is not None and settings.index_url.user is not None:
        yield "WATCHWORD_INDEX_API_KEY and a user in WATCHWORD_INDEX_URL must not be set together."
    if settings.oidc_issuer is not None and settings.socket_path is not None and settings.public_url is None:
        yield "WATCHWORD_OIDC_ISSUER needs WATCHWORD_PUBLIC_URL, where browsers reach this service."
    if settings.index_api_key is not None and settings.index_url is None:
        yield "WATCHWORD_INDEX_API_KEY may be set only with WATCHWORD_INDEX_URL."
