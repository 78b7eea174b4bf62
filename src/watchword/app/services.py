"""The services of a process, joined: what each of them is given."""

import hmac
import os
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from watchword.access.actor_service import Actors
from watchword.access.group_service import Groups
from watchword.access.policy_service import Policies
from watchword.accounts.service import Accounts
from watchword.audit.jobs import EventFeed, EventStream
from watchword.audit.service import AuditLog
from watchword.audit.sinks import open_sink
from watchword.authority.rejections_service import RejectionLog
from watchword.authority.service import Authority
from watchword.basics.background import Purge, PurgeRows
from watchword.basics.errors import Fault
from watchword.basics.secret import Secret
from watchword.basics.times import DAY, system_clock
from watchword.declared.service import DeclaredSets
from watchword.index.engine import Engine
from watchword.index.jobs import LogProblem, Supervisor
from watchword.index.service import Operations
from watchword.journal.day_counts import first_kept
from watchword.notices.mail_jobs import MailSender
from watchword.notices.mail_rules import MAIL_DAYS
from watchword.notices.mail_service import MailPreferences
from watchword.notices.webhook_client import WebhookClient
from watchword.notices.webhook_jobs import DeliverySender
from watchword.notices.webhook_rules import KEPT_DAYS
from watchword.notices.webhook_service import Webhooks, sealed_secret
from watchword.offboarding.service import Offboarding
from watchword.outbound.client import OutboundProcess
from watchword.retention.jobs import RetentionScheduler, SeriesProblems
from watchword.retention.plan_service import RetentionPlanner
from watchword.retention.run_rules import KEEP_DAYS, SteadyClock
from watchword.retention.run_service import RetentionRuns
from watchword.retention.service import Retention
from watchword.settings import Settings
from watchword.signin.device_service import Devices
from watchword.signin.session_service import Sessions
from watchword.stores.joined import Store
from watchword.tokens.expiry_jobs import ExpiryNotices
from watchword.tokens.introspect_service import TokenIntrospector
from watchword.tokens.issue_service import TokenCounters, TokenIssuer
from watchword.tokens.keys_service import KeyRing, Sealer
from watchword.tokens.list_service import VisibleTokens
from watchword.tokens.overview_service import TokenCounter, TokenOverview
from watchword.tokens.revoke_service import TokenRevoker
from watchword.tokens.rules import identifier
from watchword.tokens.usage_jobs import UsageRecorder

if TYPE_CHECKING:
    from watchword.app.metrics import Metrics
    from watchword.notices.smtp import SmtpServer
    from watchword.signin.openid import OpenIdProvider


T = TypeVar("T")


def new_id() -> str:
    return str(uuid.uuid4())


def new_secret() -> Secret[str]:
    return Secret(secrets.token_urlsafe(32))


class OpenStore(NamedTuple):
    """A store with the keys that it holds, opened by the master key."""

    store: Store
    keys: KeyRing
    salt: Secret[bytes]
    seal: Sealer


class StoreServices:
    """What commands on a store use."""

    def __init__(self, settings: Settings, opened: OpenStore, counters: TokenCounters) -> None:
        self.store, self.keys, self.salt, self.seal = store, keys, salt, _ = opened
        self.usage = UsageRecorder(store)
        self.rejections = RejectionLog(store, store.clock)
        token_id = identifier(salt, settings.datahub_salt)
        self.authority = authority = Authority(store, token_id, self.usage.record, settings.actor_daily_changes)
        self.tokens = VisibleTokens(store=store, authority=authority)
        self.issuer = TokenIssuer(
            store=store,
            authority=authority,
            visible=self.tokens,
            signer=keys,
            salt=salt,
            lifetimes=settings.lifetimes,
            max_live=settings.max_live_tokens,
            clock=store.clock,
            counters=counters,
        )
        self.policies = Policies(store, authority, new_id)

    async def flush(self) -> None:
        """Write what is still in memory."""
        for flush in (self.usage.flush, self.rejections.close):
            with suppress(Fault):
                await flush()


class Services(StoreServices):
    """What a worker of the server has."""

    def __init__(
        self,
        settings: Settings,
        opened: OpenStore,
        *,
        engine: Engine,
        home: str,
        outbound: OutboundProcess,
        provider: "OpenIdProvider | None",
        mail_server: "SmtpServer | None",
        metrics: "Metrics",
        log_operation: LogProblem,
        log_webhook: Callable[[str, str], None],
    ) -> None:
        super().__init__(settings, opened, TokenCounters(metrics.issued, metrics.revoked))
        store, authority, salt, clock = self.store, self.authority, self.salt, self.store.clock
        self.actors = Actors(store, authority, settings.root_actor)
        self.groups = Groups(store, authority, new_id)
        self.declared = DeclaredSets(store, authority, partial(sealed_secret, self.seal, os.urandom))
        self.engine = engine
        self.provider = provider
        self.cookie_seal = Sealer(Secret(hmac.digest(salt.reveal(), b"cookies", "sha256")))
        self.introspector = TokenIntrospector(store=store, authority=authority, signer=self.keys)
        self.revoker = TokenRevoker(store=store, authority=authority, visible=self.tokens, count=metrics.revoked)
        self.offboarding = Offboarding(store, authority, self.actors, self.tokens, self.revoker)
        self.accounts = Accounts(store, authority, new_id, clock, metrics.revoked)
        issuer = None if provider is None else provider.issuer
        self.sessions = Sessions(store, authority, salt, clock, settings.session_limits, new_secret, issuer)
        logins = settings.device_clients, settings.login_days, settings.lifetimes
        self.devices = Devices(store, authority, self.sessions, self.issuer, salt, clock, *logins, new_secret)
        self.feed = EventFeed(store)
        self.audit = AuditLog(store, authority, self.rejections, self.feed)
        target = settings.event_stream
        self.stream = (
            None if target is None else EventStream(store, self.feed, open_sink(target), new_id(), metrics.streamed)
        )
        self.counter = TokenCounter(store, clock)
        self.overview = TokenOverview(store, self.counter, self.rejections, clock)
        self.expiry = ExpiryNotices(store, settings.expiry_notice_days, new_id())
        self.purge = Purge(_purges(settings, store), busy=("deliveries", "events"))
        kinds = settings.mail_rules.kinds if settings.smtp_url else frozenset()
        self.mail_preferences = MailPreferences(store, authority, kinds)
        url, rules = settings.issuer, settings.mail_rules
        has_console = settings.console and url.startswith("http")
        self.mail = (
            None
            if mail_server is None
            else MailSender(store, mail_server, rules, url, new_id(), metrics.mail, has_console=has_console)
        )
        client = WebhookClient(
            outbound, settings.webhook_allowed_networks, clock, allow_http=settings.webhook_allow_http
        )
        self.webhooks = Webhooks(store, authority, self.seal, client, clock, new_id, os.urandom)
        self.deliveries = DeliverySender(
            store, self.seal, client, clock, new_id(), count=metrics.delivery, log=log_webhook
        )
        self.supervisor = Supervisor(store, engine, settings.index_rate, clock, log_operation, home)
        self.operations = Operations(store, authority, engine, settings.index_names, clock, self.supervisor.wake, home)
        self.retention = Retention(store, authority)
        steady = SteadyClock(clock, system_clock, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
        planner = RetentionPlanner(engine, self.operations, settings.index_names, home, steady)
        problems = SeriesProblems(log_operation)
        self.retention_scheduler = RetentionScheduler(store, planner, new_id(), self.supervisor.wake, problems)
        self.retention_runs = RetentionRuns(store, authority, planner, self.retention_scheduler)
        self.clock = clock
        self._by_class: dict[type, Any] = {type(one): one for one in vars(self).values()}
        self._by_class |= {Store: store, Settings: settings}

    def of(self, service: type[T]) -> T:
        """The service of this class, for the doors."""
        found: T = self._by_class[service]
        return found


def _purges(settings: Settings, store: Store) -> dict[str, PurgeRows]:
    def older(days: int, purge: Callable[[int, int], Awaitable[int]]) -> PurgeRows:
        return lambda most: purge(store.clock() - days * DAY, most)

    purges = {
        "idempotency records": store.purge_idempotency_records,
        "sessions": store.purge_sessions,
        "devices": store.purge_devices,
        "change rates": store.purge_change_rates,
        "mails": older(MAIL_DAYS, store.prune_mails),
        "groups": older(settings.oidc_groups_days, store.drop_external_groups),
        "deliveries": older(KEPT_DAYS, store.prune_deliveries),
        "events": older(settings.event_days, store.prune_events),
        "tokens": older(settings.dead_token_days, store.purge_tokens),
        "uses": lambda most: store.purge_uses(first_kept(store.clock()), most),
        "retention runs": older(KEEP_DAYS, store.purge_runs),
        "series sizes": older(KEEP_DAYS, store.purge_sizes),
    }
    if not settings.oidc_groups_days:
        del purges["groups"]
    return purges
