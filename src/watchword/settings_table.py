"""The table of settings: each with its default, its help and how its text is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from watchword import values as read
from watchword.domain.lifetimes import Duration

PREFIX = "WATCHWORD_"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    default: str
    help: str
    parse: Callable[[str], Any]
    secret: bool = False
    flagless: bool = False
    """Nothing but a secret: as a flag, everybody on the machine could read it."""
    own: bool = False
    """Each of the instances that share a store has its own."""

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def file_variable(self) -> str:
        """Names a file with the value in it: for a secret, which an environment shows to more than it should."""
        return f"{self.variable}_FILE"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


_ALL_DURATIONS = ",".join(duration.name for duration in Duration if duration is not Duration.NO_EXPIRY)

# Those that DataHub's garbage collection truncates.
_ASPECTS = (
    "dataset.operation,dataset.datasetUsageStatistics,chart.chartUsageStatistics,"
    "dashboard.dashboardUsageStatistics,query.queryUsageStatistics"
)

TABLE: tuple[Setting, ...] = (
    Setting(
        "host", "127.0.0.1", "Address to listen on: an IP address, localhost, or unix:/path/of.sock.",
        read.host, own=True,
    ),
    Setting("port", "8080", "Port to listen on.", read.port, own=True),
    Setting("workers", "1", "Worker processes.", read.workers, own=True),
    Setting(
        "metrics_address", "", "Second address to listen on, for /metrics and /health with its parts; then only there.",
        read.listen_address, own=True,
    ),
    Setting("public_url", "", "Address under which others reach this service; also the tokens' issuer.", read.url),
    Setting("tls_cert", "", "Certificate chain (PEM) to serve TLS with.", read.path, own=True),
    Setting("tls_key", "", "Private key (PEM) of that certificate.", read.path, own=True),
    Setting(
        "data_dir", "./watchword-data", "Folder of the embedded store and master key (mode 0700).",
        read.data_dir, own=True,
    ),
    Setting("database_url", "", "PostgreSQL by URL; SQLite in the data folder by default.", read.database, secret=True),
    Setting("database_schema", "watchword", "Schema of the database in which the store is kept.", read.schema),
    Setting("database_timeout", "2", "Seconds within which the database must answer.", read.seconds, own=True),
    Setting("database_pool", "8", "Connections of a worker, besides two for verification.", read.pool, own=True),
    Setting("index_url", "", "Search index by URL; embedded by default.", read.index_url, secret=True),
    Setting("index_prefix", "", "What the names of its indices begin with, before an underscore.", read.index_prefix),
    Setting("index_api_key", "", "API key for the search index.", read.secret, secret=True, flagless=True),
    Setting("index_ca_file", "", "Certificates (PEM) to check the search index by.", read.path, own=True),
    Setting("index_verify_tls", "on", "Whether the certificate of the search index is checked.", read.switch),
    Setting("index_timeout", "10", "Seconds within which the search index must answer.", read.seconds, own=True),
    Setting("index_rate", "10000", "Rows a second that a truncation deletes or copies; 0: no limit.", read.rate),
    Setting("known_aspects", _ASPECTS, "Aspects that exist even before they have an index.", read.aspects),
    Setting("root_actor", "urn:li:corpuser:admin", "The actor that holds every privilege.", read.actor),
    Setting("policy_file", "", "YAML file of policies, put in force at each start.", read.path, own=True),
    Setting(
        "master_key_file", "", "Key that seals the signing keys; made in the data folder, except for PostgreSQL.",
        read.path, own=True,
    ),
    Setting("local_mode", "auto", "Whether our own user may name an actor: auto, on or off.", read.local_mode),
    Setting("trusted_peers", "", "Networks (CIDR), or unix, whose X-Service-Actor is believed.", read.peers),
    Setting("trusted_proxies", "", "Networks (CIDR) of proxies whose X-Forwarded-For is believed.", read.networks),
    Setting("actor_headers", "X-Service-Actor,X-DataHub-Actor", "Header that names a local caller.", read.headers),
    Setting("allowed_durations", _ALL_DURATIONS, "Lifetimes a token may be given.", read.durations),
    Setting("allow_no_expiry", "off", "Whether a token may be given NO_EXPIRY.", read.switch),
    Setting("max_live_tokens", "10000", "Live tokens one actor may hold.", read.max_live),
    Setting(
        "actor_processor_percent", "5",
        "Percent of a processor that one actor's new GraphQL documents and own searches may take in a worker; 0: any.",
        read.percent, own=True,
    ),
    Setting("event_days", "400", "Days for which events are kept.", read.days),
    Setting("dead_token_days", "90", "Days for which expired and revoked tokens are kept.", read.days),
    Setting("console", "on", "Whether the web console is served, and people may sign in to it.", read.switch, own=True),
    Setting("session_hours", "12", "Hours after which a person must sign in to the console again.", read.hours),
    Setting(
        "log_level", "info", "debug, info, warning or error.",
        read.one_of("debug", "info", "warning", "error"), own=True,
    ),
    Setting(
        "access_log", "default", "Requests to log: all, off, or default (all but successful /auth and probes).",
        read.one_of("all", "default", "off"), own=True,
    ),
)  # fmt: skip
