"""Wiring: opens and joins everything. Imported by commands that work on this machine, and by tests."""

import asyncio
import ctypes
import errno
import multiprocessing
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.admin import rules as admin
from watchword.app.services import OpenStore, Services, StoreServices, new_id
from watchword.audit.sinks import check_target
from watchword.authority.declared_parts import summary
from watchword.authority.policies import default_policies, root_policy
from watchword.basics.errors import OperatorError
from watchword.basics.files import user_name
from watchword.basics.interpreter import freeze_loaded, without_modules
from watchword.basics.times import Clock, system_clock
from watchword.database.transaction import Observe, ignore
from watchword.database.urls import SchemaVersions, SqliteUrl, StoreUrl
from watchword.declared.rules import SetPlan
from watchword.declared.service import with_secrets
from watchword.index.embedded.engine import EmbeddedEngine
from watchword.index.embedded.engine import open_engine as open_embedded
from watchword.index.embedded.index_file import describe as describe_index
from watchword.index.embedded.index_file import prepare as prepare_index
from watchword.index.embedded.process import EngineProcess
from watchword.index.engine import Engine
from watchword.index.jobs import LogProblem
from watchword.journal.events import clock_warning
from watchword.journal.preconditions import system_precondition
from watchword.notices.mail_rules import SendResult, test_mail
from watchword.notices.webhook_service import sealed_secret
from watchword.outbound.client import OutboundProcess
from watchword.settings import Settings, helper_environment
from watchword.stores import exists, is_sealed, open_store, prepare
from watchword.tokens.issue_service import TokenCounters
from watchword.tokens.keys_service import (
    KeyRing,
    MasterKeyError,
    Sealer,
    check_master_key,
    load_master_key,
    make_master_key,
)

if TYPE_CHECKING:
    from watchword.admin.tables import Progress
    from watchword.app.metrics import Metrics
    from watchword.app.worker import Worker
    from watchword.notices.smtp import SmtpServer
    from watchword.signin.openid import OpenIdProvider


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
async def _opened(settings: Settings, observe: Observe, *, as_started: bool = False) -> AsyncIterator[OpenStore]:
    """With `as_started`, tokens have the issuer of the service that last started on the store, if there was one."""
    sealer = Sealer(load_master_key(settings.master_key_path, create=False))
    store = await open_store(settings.store_url, system_clock, observe)
    try:
        started = await store.last_start() if as_started else None
        keys = KeyRing(store, sealer, settings.issuer if started is None else started.issuer, store.clock)
        yield OpenStore(store, keys, await keys.settle(), sealer)
    finally:
        await store.close()


@asynccontextmanager
async def open_service(settings: Settings, *, as_started: bool = False) -> AsyncIterator[StoreServices]:
    async with _opened(settings, ignore, as_started=as_started) as opened:
        services = StoreServices(settings, opened, TokenCounters(uncounted, uncounted))
        yield services
        await services.flush()


# For commands on the store. Their settings may differ from those of the service.
open_local = partial(open_service, as_started=True)


@asynccontextmanager
async def open_whole(
    settings: Settings, metrics: "Metrics", log_operation: LogProblem, log_webhook: Callable[[str, str], None]
) -> AsyncIterator[Services]:
    async with _opened(settings, metrics.store) as opened:
        engine, outbound = open_index(settings), OutboundProcess(helper_environment())
        try:
            services = Services(
                settings,
                opened,
                engine=engine,
                home=_home(settings, engine),
                outbound=outbound,
                provider=open_provider(settings, outbound, opened.store.clock),
                mail_server=mail_server(settings),
                metrics=metrics,
                log_operation=log_operation,
                log_webhook=log_webhook,
            )
            if services.mail is not None:
                await services.mail.begin()
            try:
                yield services
            finally:
                services.feed.close()
        finally:
            await outbound.close()
            await engine.close()
        await services.flush()


def mail_server(settings: Settings) -> "SmtpServer | None":
    if settings.smtp_url is None or settings.smtp_from is None:
        return None
    from watchword.notices.smtp import SmtpServer

    return SmtpServer(settings.smtp_url, settings.smtp_from, settings.smtp_ca_file)


def send_test_mail(settings: Settings, address: str) -> tuple[SendResult, str]:
    server = mail_server(settings)
    if server is None:
        raise OperatorError("No mail server is set. Set WATCHWORD_SMTP_URL and WATCHWORD_SMTP_FROM.")

    async def send(server: "SmtpServer") -> tuple[SendResult, str]:
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
    from watchword.index.opensearch.engine import open_engine

    return open_engine(
        address.hosts,
        user=address.user,
        password=address.password,
        api_key=settings.index_api_key,
        ca_file=settings.index_ca_file,
        verify_tls=settings.index_verify_tls,
        timeout=settings.index_timeout,
    )


def open_provider(settings: Settings, outbound: OutboundProcess, clock: Clock) -> "OpenIdProvider | None":
    if settings.oidc_issuer is None or not settings.console:
        return None
    from watchword.signin.openid import ClientRegistration, OpenIdProvider

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


async def settle(settings: Settings) -> tuple[SetPlan, str]:
    """Create the first keys and apply the root policy, the default policies and the policy file, as each start does.
    Returns the changes by the file, and a warning if the clock is wrong.
    """
    declared = None
    if settings.policy_file is not None:
        from watchword.declared.policy_file import read_policy_file

        declared = read_policy_file(settings.policy_file, at_start=True).declared
    async with open_service(settings) as service:
        root = root_policy(settings.root_actor)
        if declared is not None:
            declared = with_secrets(declared, partial(sealed_secret, service.seal, os.urandom))
        warning = clock_warning(*await service.store.newest_event())
        plan = await service.store.apply_start(root, default_policies(), declared, settings.audited_values)
        return plan, warning


def serve(settings: Settings) -> None:
    """Prepare everything that can fail, so that it fails here with a message; then run until a signal stops it."""
    with without_modules("anyio", "dotenv", "rich", "watchfiles"):
        from watchword.app.graphql_schema import built_schema
        from watchword.app.run_folder import run_folder
        from watchword.app.server import run

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
        applied = f"{settings.policy_file}: {summary(plan.changes)}"
        notes = [] if settings.policy_file is None else [("policy file", applied)]
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
    from watchword.app.worker import Worker

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
    from watchword.admin.check import check

    return check(settings.store_url)


def back_up_store(settings: Settings, file: Path, force: bool, progress: "Progress") -> admin.Backup:
    from watchword.admin.backup import back_up, sealed_in

    if file.resolve() == settings.master_key_path.resolve():
        raise OperatorError(f"FILE must not be the master key; {file} is. Name another file.")
    made = asyncio.run(back_up(settings.store_url, file, system_clock(), force=force, progress=progress))
    sealed = asyncio.run(sealed_in(file))
    if sealed.salt is None or not settings.master_key_path.exists():
        return made
    try:
        _master_key_check(settings, "The backup")(sealed)
    except OperatorError:
        return replace(made, key_opens=False)
    return replace(made, key_opens=True)


def restore_preview(settings: Settings, file: Path) -> admin.RestorePreview:
    from watchword.admin.restore import preview

    check_master_key = _master_key_check(settings, f"The backup {file}")
    return asyncio.run(preview(settings.store_url, file, system_clock(), check_master_key))


def restore_store(
    settings: Settings, file: Path, choice: admin.RestoreChoice, *, without_current: bool
) -> admin.RestoreResult:
    from watchword.admin.restore import examine, restore

    url, check_master_key = settings.store_url, _master_key_check(settings, f"The backup {file}")
    asyncio.run(examine(url, file, system_clock(), check_master_key))
    if not settings.is_shared:
        prepare_folder(settings.data_dir)
    with _no_server_running(settings, url):
        by, now = system_precondition("command line"), system_clock()
        return asyncio.run(restore(url, file, choice, by, now, check_master_key, without_current=without_current))


def copy_store(settings: Settings, source: StoreUrl, target: StoreUrl, progress: "Progress") -> admin.CopyResult:
    from watchword.admin.backup import copy

    check_master_key = _master_key_check(settings, f"The store {source}")
    with _no_server_running(settings, source, target):
        return asyncio.run(copy(source, target, system_clock(), check_master_key, progress))


@contextmanager
def _no_server_running(settings: Settings, *urls: StoreUrl) -> Iterator[None]:
    """No server starts on the folders of these files meanwhile. A database has a lock for this."""
    from watchword.app.run_folder import no_server_running

    files = [url for url in urls if isinstance(url, SqliteUrl)]
    folders = {settings.data_dir if file == settings.store_url else file.path.parent for file in files}
    with ExitStack() as stack:
        for folder in sorted({folder.resolve(): folder for folder in folders}.values()):
            if (folder / "run").is_dir() or (folder == settings.data_dir and folder.is_dir()):
                stack.enter_context(no_server_running(folder))
        yield


def _master_key_check(settings: Settings, what: str) -> admin.CheckMasterKey:
    def check(sealed: admin.SealedSecrets) -> None:
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


def diagnose(settings: Settings, url: str | None) -> Iterator[admin.Diagnostic]:
    from watchword.admin import doctor
    from watchword.app.metrics import ignored_parameters
    from watchword.app.run_folder import is_running

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
    from watchword.admin.doctor import ask

    answer = ask(url)
    return None if answer is None else answer.version
