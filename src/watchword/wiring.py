"""Wiring: opens and joins everything. Imported by `__main__` and by tests alone."""

import asyncio
import ctypes
import itertools
import multiprocessing
import os
import secrets
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.domain.actors import system_warrant
from watchword.domain.backups import Backup, Choice, Prospect, Restored
from watchword.domain.declared import PolicyChange, summary
from watchword.domain.engine import Engine
from watchword.domain.errors import OperatorError
from watchword.domain.findings import Finding
from watchword.domain.indices import IndexNames
from watchword.domain.policies import default_policies, root_policy
from watchword.domain.ports import Store
from watchword.domain.secret import Secret
from watchword.engines import embedded
from watchword.engines.embedded.file import look as look_at_index
from watchword.engines.embedded.file import prepare as prepare_index
from watchword.engines.embedded.helper import Helper
from watchword.policyfile import read_policy_file
from watchword.service.audit import Audit
from watchword.service.authority import Authority
from watchword.service.operations import Operations
from watchword.service.policies import Policies
from watchword.service.refusals import Refusals
from watchword.service.supervisor import Supervisor, Tell
from watchword.service.tokens import Counted, TokenRules, Tokens
from watchword.service.uses import Uses
from watchword.settings import Settings
from watchword.signing.keyring import KeyRing, prove_opens
from watchword.signing.sealing import MasterKeyError, Sealer, load_master_key
from watchword.stores.sqlite import is_sealed, open_store, prepare
from watchword.stores.sqlite.backup import Progress, back_up
from watchword.stores.sqlite.check import check
from watchword.stores.sqlite.database import Observe, ignore
from watchword.stores.sqlite.keys import Sealed
from watchword.stores.sqlite.restore import examine, prospect, restore

if TYPE_CHECKING:
    from watchword.doors.http.worker import Worker


def clock() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return str(uuid.uuid4())


def request_ids() -> Callable[[], str]:
    """Unique without a system call each: a random start for the process, then a count."""
    start, count = secrets.token_hex(6), itertools.count()
    return lambda: f"{start}-{next(count):x}"


@dataclass(frozen=True, slots=True)
class Opened:
    """The service, open on its store, without what needs the search index."""

    store: Store
    keys: KeyRing
    authority: Authority
    tokens: Tokens
    policies: Policies
    audit: Audit
    refusals: Refusals
    uses: Uses
    salt: Secret[bytes]


@dataclass(frozen=True, slots=True)
class Whole:
    """The service, open on its store and its search index: what a worker serves."""

    core: Opened
    engine: Engine
    operations: Operations
    supervisor: Supervisor


def uncounted() -> None:
    """For those who count nothing."""


@asynccontextmanager
async def open_service(
    settings: Settings,
    observe: Observe = ignore,
    counted: Counted = Counted(uncounted, uncounted),  # noqa: B008 - frozen
) -> AsyncIterator[Opened]:
    sealer = Sealer(load_master_key(settings.master_key_path, create=False))
    store = open_store(settings.store_path, clock, observe)
    try:
        keys = KeyRing(store, sealer, settings.issuer, clock)
        salt = await keys.settle()
        uses = Uses(store)
        refusals = Refusals(store, clock)
        authority = Authority(store, salt, clock, uses)
        rules = TokenRules(settings.lifetimes, settings.max_live_tokens)
        yield Opened(
            store=store,
            keys=keys,
            authority=authority,
            tokens=Tokens(store, authority, keys, salt, rules, clock, counted),
            policies=Policies(store, authority, settings.root_actor, new_id),
            audit=Audit(store, authority, refusals, clock, settings.event_days),
            refusals=refusals,
            uses=uses,
            salt=salt,
        )
        await uses.flush()
        await refusals.close()
    finally:
        await store.close()


@asynccontextmanager
async def open_whole(settings: Settings, observe: Observe, counted: Counted, tell: Tell) -> AsyncIterator[Whole]:
    async with open_service(settings, observe, counted) as core:
        engine = open_index(settings)
        try:
            supervisor = Supervisor(core.store, engine, settings.index_rate, clock, tell)
            operations = Operations(core.store, core.authority, engine, index_names(settings), clock, supervisor.wake)
            yield Whole(core, engine, operations, supervisor)
        finally:
            await engine.close()


def index_names(settings: Settings) -> IndexNames:
    return IndexNames(settings.index_prefix, settings.known_aspects)


def open_index(settings: Settings) -> Engine:
    """The search index of the settings: embedded, or by its address."""
    address = settings.index_url
    if address is None:
        return embedded.open_engine(settings.index_path)
    from watchword.engines import opensearch

    return opensearch.open_engine(
        address.hosts,
        user=address.user,
        password=address.password,
        api_key=settings.index_api_key,
        ca_file=settings.index_ca_file,
        verify_tls=settings.index_verify_tls,
        timeout=settings.index_timeout,
    )


def prepare_store(settings: Settings) -> tuple[int, int]:
    """Make the folder, the store and the master key if need be; migrate; returns the versions before and after."""
    _prepare_folder(settings.data_dir)
    versions = prepare(settings.store_path)
    # A key made now would open nothing that an older one sealed, and would hide that the older one is gone.
    create = settings.master_key_file is None and not is_sealed(settings.store_path)
    load_master_key(settings.master_key_path, create=create)
    return versions


def _prepare_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = "it is no folder" if folder.exists() else error.strerror
        raise OperatorError(f"WATCHWORD_DATA_DIR must be a folder that can be made; {folder}: {problem}.") from None
    if folder.stat().st_mode & 0o002:
        raise OperatorError(f"Anybody may put files into the data folder {folder}. Run: chmod 700 {folder}")


def check_store(settings: Settings) -> Iterator[tuple[str, str | None]]:
    return check(settings.store_path)


def back_up_store(settings: Settings, file: Path, force: bool, progress: Progress) -> Backup:
    if file.resolve() == settings.master_key_path.resolve():
        raise OperatorError(f"FILE must not be the master key; {file} is. Name another file.")
    return back_up(settings.store_path, file, clock(), force=force, progress=progress)


def restore_prospect(settings: Settings, file: Path) -> Prospect:
    return prospect(_where_it_lies(settings.store_path), file, clock(), _prove_key(settings, file))


def restore_store(settings: Settings, file: Path, choice: Choice) -> Restored:
    from watchword.doors.http.running import held_off

    store = _where_it_lies(settings.store_path)
    prove = _prove_key(settings, file)
    examine(store, file, clock(), prove)
    _prepare_folder(settings.data_dir)
    with held_off(settings.data_dir):
        return restore(store, file, choice, system_warrant("command line"), clock(), prove)


def _where_it_lies(store: Path) -> Path:
    """Behind a link, the file itself: what replaces it must lie on its disk, and what is kept must be it."""
    return store.resolve() if store.is_symlink() else store


def _prove_key(settings: Settings, file: Path) -> Callable[[Sealed], None]:
    def prove(sealed: Sealed) -> None:
        if sealed.salt is None:
            return
        sealer = Sealer(load_master_key(settings.master_key_path, create=False))
        try:
            prove_opens(sealer, sealed.salt, sealed.private_keys)
        except MasterKeyError:
            raise OperatorError(
                f"The backup {file} was sealed with another master key than {settings.master_key_path}. Put the one "
                "that was in use when it was made in its place, or name it with --master-key-file."
            ) from None

    return prove


def look_over(settings: Settings) -> Iterator[Finding]:
    from watchword import checkup
    from watchword.doors.http.running import is_running

    def ask_index() -> str:
        return look_at_index(settings.index_path) if settings.index_url is None else asyncio.run(_probe(settings))

    return checkup.look_over(settings, clock, ask_index, running=is_running(settings.data_dir))


async def _probe(settings: Settings) -> str:
    engine = open_index(settings)
    try:
        return await engine.probe()
    finally:
        await engine.close()


async def settle(settings: Settings) -> tuple[PolicyChange, ...]:
    """What each start puts right: the first keys, the root policy, the default policies, those of the policy file.
    Returns what the file changed.
    """
    declared = None if settings.policy_file is None else read_policy_file(settings.policy_file)
    async with open_service(settings) as service:
        root = root_policy(settings.root_actor)
        return await service.store.settle(root, default_policies(), declared, settings.told)


def serve(settings: Settings) -> None:
    """Prepare everything that can fail, so that it fails here with a sentence; then run until told to stop."""
    from watchword.doors.http.running import run_folder
    from watchword.doors.http.server import run

    _prepare_folder(settings.data_dir)
    # From here on it counts as running: no restore takes away the store that is being prepared.
    with run_folder(settings.data_dir) as folder, _index_process(settings):
        prepare_store(settings)
        changes = asyncio.run(settle(settings))
        told = [] if settings.policy_file is None else [("policy file", f"{settings.policy_file}: {summary(changes)}")]
        run(settings, load_app, folder, told)


def _index_process(settings: Settings) -> AbstractContextManager[object]:
    """The embedded index does its work in a process of its own, one for all workers."""
    if settings.index_url is not None:
        return nullcontext()
    prepare_index(settings.index_path)
    return Helper(settings.index_path)


def load_app(settings: Settings, run_folder: Path) -> "Worker":
    """The ASGI application of one worker process."""
    from watchword.doors.http.worker import Worker

    _die_with_parent()
    return Worker(settings, run_folder, open_whole, clock, new_id, request_ids())


def _die_with_parent() -> None:
    """A worker must not outlive a main process that was killed. Linux only; elsewhere it stays.

    By SIGKILL: a worker that is still starting has the main process's handler of SIGTERM, which would swallow it.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    main = multiprocessing.parent_process()
    if main is not None and os.getppid() != main.pid:
        os.kill(os.getpid(), signal.SIGKILL)
