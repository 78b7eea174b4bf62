"""Wiring: opens and joins everything. Imported by `__main__` and by tests alone."""

import asyncio
import ctypes
import errno
import hmac
import multiprocessing
import os
import secrets
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.domain.actors import system_precondition
from watchword.domain.admin import (
    Backup,
    CheckMasterKey,
    CopyResult,
    Diagnostic,
    RestoreChoice,
    RestorePreview,
    RestoreResult,
    SealedSecrets,
)
from watchword.domain.datahub import DataHubSource, DataHubUrl
from watchword.domain.engine import Engine
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.events import clock_warning
from watchword.domain.mail import MailServer, SendResult, test_mail
from watchword.domain.policies import PolicyPlan, default_policies, root_policy, summary
from watchword.domain.ports import Clock, IdentityProvider, Store
from watchword.domain.retention import SteadyClock
from watchword.domain.secret import Secret
from watchword.domain.stores import SchemaVersions, SqliteUrl, StoreUrl
from watchword.domain.tokens import identifier
from watchword.engines.embedded.engine import EmbeddedEngine
from watchword.engines.embedded.engine import open_engine as open_embedded
from watchword.engines.embedded.index_file import describe as describe_index
from watchword.engines.embedded.index_file import prepare as prepare_index
from watchword.engines.embedded.process import EngineProcess
from watchword.event_sinks import check_target, open_sink
from watchword.files import user_name
from watchword.interpreter import freeze_loaded, without_modules
from watchword.outbound.client import OutboundProcess
from watchword.service import AllServices, CoreServices
from watchword.service.actors import Accounts, Offboarding
from watchword.service.audit import AuditLog, EventFeed, EventStream, RejectionLog
from watchword.service.authority import Authority
from watchword.service.background import ExpiryNotices, Purge, UsageRecorder
from watchword.service.datahub_import import DataHubImport, Imports
from watchword.service.devices import Devices, DeviceSettings
from watchword.service.mail import MailPreferences, MailSender, MailSource
from watchword.service.operations import Operations
from watchword.service.overview import TokenCounter, TokenOverview
from watchword.service.policies import Policies
from watchword.service.retention import Retention, RetentionPlanner, RetentionRuns, RetentionScheduler
from watchword.service.sessions import Sessions
from watchword.service.tokens import TokenCounters, Tokens
from watchword.service.truncation import LogProblem, Supervisor
from watchword.service.webhooks import DeliverySender, Webhooks, sealed_secret, with_secrets
from watchword.settings import Settings, helper_environment
from watchword.signing import KeyRing, MasterKeyError, Sealer, check_master_key, load_master_key, make_master_key
from watchword.stores import exists, import_lock, is_sealed, open_store, prepare
from watchword.stores.sql.transaction import Observe, ignore
from watchword.webhook_client import WebhookClient

if TYPE_CHECKING:
    from watchword.http.server import Worker
    from watchword.stores.admin.tables import Progress


IMPORT_SECONDS = 60


def system_clock() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return str(uuid.uuid4())


def new_session() -> Secret[str]:
    return Secret(secrets.token_urlsafe(32))


def request_ids() -> Callable[[], str]:
    """Random ids, so that callers cannot guess each other's. Many are drawn at once: it is a system call."""

    def draw() -> Iterator[str]:
        while True:
            drawn = secrets.token_hex(12 * 100)
            yield from (drawn[at : at + 24] for at in range(0, len(drawn), 24))

    return draw().__next__


def uncounted(number: int) -> None:
    """A counter for commands, which export no metrics."""


@asynccontextmanager
async def open_service(
    settings: Settings,
    observe: Observe = ignore,
    counters: TokenCounters = TokenCounters(uncounted, uncounted),  # noqa: B008 - frozen
    *,
    as_started: bool = False,
) -> AsyncIterator[CoreServices]:
    """With `as_started`, tokens have the issuer of the service that last started on the store, if there was one."""
    sealer = Sealer(load_master_key(settings.master_key_path, create=False))
    store = await open_store(settings.store_url, system_clock, observe)
    clock, feed = store.clock, EventFeed(store)
    try:
        started = await store.last_start() if as_started else None
        keys = KeyRing(store, sealer, settings.issuer if started is None else started.issuer, clock)
        salt = await keys.settle()
        usage = UsageRecorder(store)
        rejections, counter = RejectionLog(store, clock), TokenCounter(store, clock)
        authority = Authority(store, identifier(salt, settings.datahub_salt), usage, settings.actor_daily_changes)
        tokens = Tokens(store, authority, keys, salt, settings.lifetimes, settings.max_live_tokens, clock, counters)
        sessions = Sessions(store, authority, salt, clock, settings.session_limits, new_session)
        logins = DeviceSettings(settings.device_clients, settings.login_days, settings.lifetimes)
        webhook_secret = partial(sealed_secret, sealer, os.urandom)
        policies = Policies(store, authority, settings.root_actor, new_id, webhook_secret)
        yield CoreServices(
            store=store,
            keys=keys,
            authority=authority,
            tokens=tokens,
            offboarding=Offboarding(store, authority, policies, tokens),
            imports=Imports(store, authority, settings.datahub_salt is not None),
            accounts=Accounts(store, authority, new_id, clock, counters.revoked),
            sessions=sessions,
            devices=Devices(store, authority, sessions, tokens, salt, clock, logins, new_session),
            policies=policies,
            retention=Retention(store, authority),
            audit=AuditLog(store, authority, rejections, feed),
            rejections=rejections,
            feed=feed,
            usage=usage,
            counter=counter,
            overview=TokenOverview(store, authority, counter, rejections, clock),
            purge=Purge(store, clock, settings.dead_token_days, settings.event_days, settings.oidc_groups_days),
            seal=sealer,
            expiry=ExpiryNotices(store, settings.expiry_notice_days, new_id()),
            mail_preferences=MailPreferences(
                store, authority, settings.mail_rules.kinds if settings.smtp_url else frozenset()
            ),
            salt=salt,
        )
        for flush in (usage.flush, rejections.close):
            with suppress(Fault):
                await flush()
    finally:
        feed.close()
        await store.close()


def open_local(settings: Settings) -> AbstractAsyncContextManager[CoreServices]:
    """For commands on the store. Their settings may differ from those of the service."""
    return open_service(settings, as_started=True)


@asynccontextmanager
async def open_import(settings: Settings) -> "AsyncIterator[Callable[..., DataHubImport]]":
    """Makes runs of an import. Its transactions may take longer than a request may."""
    patient = replace(settings, database_timeout=max(settings.database_timeout, IMPORT_SECONDS))
    store = await open_store(patient.store_url, system_clock, ignore)
    try:
        yield partial(DataHubImport, store, settings.root_actor)
    finally:
        await store.close()


def lock_import(settings: Settings) -> AbstractAsyncContextManager[None]:
    return import_lock(settings.store_url)


def open_datahub(url: DataHubUrl) -> AbstractAsyncContextManager[DataHubSource]:
    from watchword.datahub_source import open_source

    return open_source(url)


@asynccontextmanager
async def open_whole(
    settings: Settings, observe: Observe, counters: TokenCounters, log: LogProblem
) -> AsyncIterator[AllServices]:
    async with open_service(settings, observe, counters) as core:
        engine, outbound = open_index(settings), OutboundProcess(helper_environment())
        try:
            store, clock, home = core.store, core.store.clock, _home(settings, engine)
            supervisor = Supervisor(store, engine, settings.index_rate, clock, log, home)
            operations = Operations(store, core.authority, engine, settings.index_names, clock, supervisor.wake, home)
            steady = SteadyClock(clock, system_clock, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
            planner = RetentionPlanner(engine, operations, settings.index_names, home, steady)
            scheduler = RetentionScheduler(store, planner, new_id(), supervisor.wake, log)
            runs = RetentionRuns(store, core.authority, planner, scheduler)
            seal = Sealer(Secret(hmac.digest(core.salt.reveal(), b"cookies", "sha256")))
            target = settings.event_stream
            stream = None if target is None else EventStream(store, core.feed, open_sink(target), new_id())
            client = WebhookClient(
                outbound, settings.webhook_allowed_networks, clock, allow_http=settings.webhook_allow_http
            )
            webhooks = Webhooks(store, core.authority, core.seal, client, clock, new_id, os.urandom)
            deliveries = DeliverySender(store, core.seal, client, clock, new_id())
            mail = open_mail(settings, store)
            if mail is not None:
                await mail.begin()
            yield AllServices(
                *(core, engine, operations, supervisor, runs, scheduler, stream, webhooks, deliveries),
                *(open_provider(settings, outbound, clock), mail, seal),
            )
        finally:
            await outbound.close()
            await engine.close()


def open_mail(settings: Settings, store: Store) -> MailSender | None:
    server = mail_server(settings)
    if server is None:
        return None
    source = MailSource(settings.issuer, settings.console and settings.issuer.startswith("http"))
    return MailSender(store, server, settings.mail_rules, source, new_id())


def mail_server(settings: Settings) -> MailServer | None:
    if settings.smtp_url is None or settings.smtp_from is None:
        return None
    from watchword.smtp import SmtpServer

    return SmtpServer(settings.smtp_url, settings.smtp_from, settings.smtp_ca_file)


def send_test_mail(settings: Settings, address: str) -> tuple[SendResult, str]:
    server = mail_server(settings)
    if server is None:
        raise OperatorError("No mail server is set. Set WATCHWORD_SMTP_URL and WATCHWORD_SMTP_FROM.")

    async def send(server: MailServer) -> tuple[SendResult, str]:
        try:
            return await server.send(address, test_mail(settings.issuer), f"test-{new_id()}")
        finally:
            await server.finish()

    return asyncio.run(send(server))


def _home(settings: Settings, engine: Engine) -> str:
    """The search index of an operation. Instances that share a store but have an embedded index each must not continue
    each other's operations.
    """
    return engine.node if settings.is_shared and isinstance(engine, EmbeddedEngine) else ""


def open_index(settings: Settings) -> Engine:
    address = settings.index_url
    if address is None:
        return open_embedded(settings.index_path)
    from watchword.engines.opensearch import open_engine

    return open_engine(
        address.hosts,
        user=address.user,
        password=address.password,
        api_key=settings.index_api_key,
        ca_file=settings.index_ca_file,
        verify_tls=settings.index_verify_tls,
        timeout=settings.index_timeout,
    )


def open_provider(settings: Settings, outbound: OutboundProcess, clock: Clock) -> IdentityProvider | None:
    if settings.oidc_issuer is None or not settings.console:
        return None
    from watchword.openid import ClientRegistration, OpenIdProvider

    client_id, redirect = settings.oidc_client_id, settings.issuer + "/sign-in/callback"
    client = ClientRegistration(
        settings.oidc_issuer, client_id, settings.oidc_client_secret, settings.oidc_scopes, redirect
    )
    return OpenIdProvider(client, outbound, clock)


def prepare_store(settings: Settings, *, may_migrate: bool = True) -> SchemaVersions:
    """Create the folder, the store and the master key if they are missing, and migrate if that is allowed."""
    prepare_folder(settings.data_dir)
    versions = prepare(settings.store_url, may_migrate=may_migrate)
    # A new key would not open existing secrets, and would hide that the old key is missing.
    create = settings.master_key_file is None and not is_sealed(settings.store_url)
    load_master_key(settings.master_key_path, create=create)
    return versions


def make_key(file: Path) -> None:
    if not make_master_key(file):
        raise OperatorError(f"{file} exists already. Stores that it seals need it. Name a new file.")


def prepare_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = "it is not a folder" if folder.exists() else error.strerror
        raise OperatorError(f"WATCHWORD_DATA_DIR must be a folder that can be created; {folder}: {problem}.") from None
    if folder.stat().st_mode & 0o002:
        raise OperatorError(f"Every user may write to the data folder {folder}. Run: chmod 700 {folder}")
    owner = folder.lstat().st_uid
    if owner not in (os.geteuid(), 0) and folder.parent.stat().st_mode & 0o002:
        raise OperatorError(
            f"The data folder {folder} belongs to another user ({user_name(owner)}), in a folder that every user may "
            "write to. Name another with WATCHWORD_DATA_DIR."
        )


async def settle(settings: Settings) -> tuple[PolicyPlan, str]:
    """Create the first keys and apply the root policy, the default policies and the policy file, as each start does.
    Returns the changes by the file, and a warning if the clock is wrong.
    """
    declared = None
    if settings.policy_file is not None:
        from watchword.policyfile import read_policy_file

        declared = read_policy_file(settings.policy_file, at_start=True)
    async with open_service(settings) as service:
        root = root_policy(settings.root_actor)
        if declared is not None:
            declared = with_secrets(declared, partial(sealed_secret, service.seal, os.urandom))
        warning = clock_warning(*await service.store.newest_event())
        plan = await service.store.apply_startup_policies(root, default_policies(), declared, settings.audited_values)
        return plan, warning


def serve(settings: Settings) -> None:
    """Prepare everything that can fail, so that it fails here with a message; then run until a signal stops it."""
    with without_modules("anyio", "dotenv", "rich", "watchfiles"):
        from watchword.http.graphql.schema import built_schema
        from watchword.http.run_folder import run_folder
        from watchword.http.server import run

    prepare_folder(settings.data_dir)
    if settings.event_stream is not None:
        check_target(settings.event_stream)
    # With the run folder it counts as running: no restore replaces the store that it prepares.
    with _full_disk_named(settings.data_dir), run_folder(settings.data_dir) as folder, _index_process(settings):
        versions = prepare_store(settings)
        if versions.is_migrated:
            with suppress(OSError):  # standard output may be closed
                print(versions, flush=True)  # noqa: T201 - for the operator
        plan, warning = asyncio.run(settle(settings))
        applied = summary((*plan.all_changes, *plan.rule_changes, *plan.webhook_changes, *plan.resource_changes))
        notes = [] if settings.policy_file is None else [("policy file", f"{settings.policy_file}: {applied}")]
        built_schema()
        freeze_loaded()
        run(settings, load_app, folder, notes, warning)


@contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Which file did not fit does not matter: all of them are in the data folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OperatorError(
            f"The disk of the data folder {folder} is full. Free some space, then start the service."
        ) from error


def _index_process(settings: Settings) -> AbstractContextManager[object]:
    """The embedded index has one process for all workers."""
    if settings.index_url is not None:
        return nullcontext()
    prepare_index(settings.index_path)
    return EngineProcess(settings.index_path)


def load_app(settings: Settings, run_folder: Path) -> "Worker":
    from watchword.http.server import Worker

    _die_with_parent()
    return Worker(settings, run_folder, open_whole, request_ids())


def _die_with_parent() -> None:
    """On Linux a worker ends when the main process is killed.

    By SIGKILL: a starting worker still has the main process's handler of SIGTERM, which would ignore it.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    main = multiprocessing.parent_process()
    if main is not None and os.getppid() != main.pid:
        os.kill(os.getpid(), signal.SIGKILL)


# What commands do with a whole store. Each loads what it needs: most commands and the server do without.


def has_store(settings: Settings) -> bool:
    return exists(settings.store_url)


def check_store(settings: Settings) -> Iterator[tuple[str, str | None]]:
    from watchword.stores.admin.check import check

    return check(settings.store_url)


def back_up_store(settings: Settings, file: Path, force: bool, progress: "Progress") -> Backup:
    from watchword.stores.admin.transfer import back_up, sealed_in

    if file.resolve() == settings.master_key_path.resolve():
        raise OperatorError(f"FILE must not be the master key; {file} is. Name another file.")
    made = back_up(settings.store_url, file, system_clock(), force=force, progress=progress)
    sealed = sealed_in(file)
    if sealed.salt is None or not settings.master_key_path.exists():
        return made
    try:
        _master_key_check(settings, "The backup")(sealed)
    except OperatorError:
        return replace(made, key_opens=False)
    return replace(made, key_opens=True)


def restore_preview(settings: Settings, file: Path) -> RestorePreview:
    from watchword.stores.admin.transfer import preview

    return preview(settings.store_url, file, system_clock(), _master_key_check(settings, f"The backup {file}"))


def restore_store(settings: Settings, file: Path, choice: RestoreChoice, *, without_current: bool) -> RestoreResult:
    from watchword.stores.admin.transfer import examine, restore

    url, check_master_key = settings.store_url, _master_key_check(settings, f"The backup {file}")
    examine(url, file, system_clock(), check_master_key)
    if not settings.is_shared:
        prepare_folder(settings.data_dir)
    with _no_server_running(settings, url):
        by, now = system_precondition("command line"), system_clock()
        return restore(url, file, choice, by, now, check_master_key, without_current=without_current)


def copy_store(settings: Settings, source: StoreUrl, target: StoreUrl, progress: "Progress") -> CopyResult:
    from watchword.stores.admin.transfer import copy

    check_master_key = _master_key_check(settings, f"The store {source}")
    with _no_server_running(settings, source, target):
        return copy(source, target, system_clock(), check_master_key, progress)


@contextmanager
def _no_server_running(settings: Settings, *urls: StoreUrl) -> Iterator[None]:
    """No server starts on the folders of these files meanwhile. A database has a lock for this."""
    from watchword.http.run_folder import no_server_running

    files = [url for url in urls if isinstance(url, SqliteUrl)]
    folders = {settings.data_dir if file == settings.store_url else file.path.parent for file in files}
    with ExitStack() as stack:
        for folder in sorted({folder.resolve(): folder for folder in folders}.values()):
            if (folder / "run").is_dir() or (folder == settings.data_dir and folder.is_dir()):
                stack.enter_context(no_server_running(folder))
        yield


def _master_key_check(settings: Settings, what: str) -> CheckMasterKey:
    def check(sealed: SealedSecrets) -> None:
        if sealed.salt is None:
            return
        if not settings.master_key_path.exists():
            raise OperatorError(
                f"There is no master key at {settings.master_key_path}. {what} is sealed with one: name its file with "
                "--master-key-file. A new key would not open it."
            )
        sealer = Sealer(load_master_key(settings.master_key_path, create=False))
        try:
            check_master_key(sealer, sealed.salt, sealed.private_keys)
        except MasterKeyError:
            raise OperatorError(
                f"{what} is sealed with another master key than {settings.master_key_path}. Put the key that was in "
                "use when it was made in its place, or name it with --master-key-file."
            ) from None

    return check


def diagnose(settings: Settings, url: str | None) -> Iterator[Diagnostic]:
    from watchword import doctor
    from watchword.http.metrics import ignored_parameters
    from watchword.http.run_folder import is_running

    def probe_index() -> str:
        return (
            describe_index(settings.index_path) if settings.index_url is None else asyncio.run(_probe_index(settings))
        )

    try:
        running = is_running(settings.data_dir)
    except PermissionError:  # doctor reports the folder
        running = False
    count_ignored = partial(ignored_parameters, settings.data_dir)
    return doctor.diagnose(settings, system_clock, probe_index, count_ignored, url, running=running)


async def _probe_index(settings: Settings) -> str:
    engine = open_index(settings)
    try:
        return await engine.probe()
    finally:
        await engine.close()


def server_version(url: str) -> str | None:
    """The version of the Watchword that answers at this address, if one does."""
    from watchword.doctor import ask

    answer = ask(url)
    return None if answer is None else answer.version
