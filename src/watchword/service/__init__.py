"""The open service, as wiring.py puts it together."""

from dataclasses import dataclass

from watchword.domain.engine import Engine
from watchword.domain.ports import IdentityProvider, Keys, Seal, Store
from watchword.domain.secret import Secret
from watchword.service.actors import Accounts, Offboarding
from watchword.service.audit import AuditLog, EventFeed, EventStream, RejectionLog
from watchword.service.authority import Authority
from watchword.service.background import ExpiryNotices, Purge, UsageRecorder
from watchword.service.datahub_import import Imports
from watchword.service.devices import Devices
from watchword.service.mail import MailPreferences, MailSender
from watchword.service.operations import Operations
from watchword.service.overview import TokenCounter, TokenOverview
from watchword.service.policies import Policies
from watchword.service.retention import Retention, RetentionRuns, RetentionScheduler
from watchword.service.sessions import Sessions
from watchword.service.tokens import Tokens
from watchword.service.truncation import Supervisor
from watchword.service.webhooks import DeliverySender, Webhooks


@dataclass(frozen=True, slots=True)
class CoreServices:
    """Everything that needs only the store."""

    store: Store
    keys: Keys
    authority: Authority
    tokens: Tokens
    accounts: Accounts
    imports: Imports
    offboarding: Offboarding
    sessions: Sessions
    devices: Devices
    policies: Policies
    retention: Retention
    audit: AuditLog
    rejections: RejectionLog
    feed: EventFeed
    usage: UsageRecorder
    counter: TokenCounter
    overview: TokenOverview
    purge: Purge
    seal: Seal
    """By the master key."""
    expiry: ExpiryNotices
    mail_preferences: MailPreferences
    salt: Secret[bytes]


@dataclass(frozen=True, slots=True)
class AllServices:
    """The service of a worker, open on its store and search index."""

    core: CoreServices
    engine: Engine
    operations: Operations
    supervisor: Supervisor
    retention_runs: RetentionRuns
    retention_scheduler: RetentionScheduler
    stream: EventStream | None
    webhooks: Webhooks
    deliveries: DeliverySender
    provider: IdentityProvider | None
    mail: MailSender | None
    cookie_seal: Seal
