"""Commands that work on this machine's store and index: what they need from the wiring, which `__main__` passes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import click

from watchword.cli.options import STORE_FLAGS, CommandFunction, with_settings
from watchword.domain.errors import OperatorError
from watchword.domain.stores import SqliteUrl

if TYPE_CHECKING:  # the wiring imports the service when a command asks for it
    from collections.abc import Awaitable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from watchword.domain.admin import Backup, CopyResult, Diagnostic, RestoreChoice, RestorePreview, RestoreResult
    from watchword.domain.datahub import DataHubSource, DataHubUrl
    from watchword.domain.engine import Engine
    from watchword.domain.mail import SendResult
    from watchword.domain.ports import Keys
    from watchword.domain.stores import SchemaVersions, StoreUrl
    from watchword.service.datahub_import import DataHubImport, ImportOptions
    from watchword.service.tokens import Tokens
    from watchword.settings import Settings

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""
LocalImport: TypeAlias = "Callable[[DataHubSource, ImportOptions, Progress], DataHubImport]"


def with_store(command: CommandFunction) -> CommandFunction:
    """Add the flags of the store; the command gets the wiring and `settings`."""
    return with_settings(*STORE_FLAGS)(click.pass_obj(command))


class LocalService(Protocol):
    @property
    def tokens(self) -> Tokens: ...
    @property
    def keys(self) -> Keys: ...


class PrepareStore(Protocol):
    def __call__(self, settings: Settings, *, may_migrate: bool = True) -> SchemaVersions: ...


class RestoreStore(Protocol):
    def __call__(
        self, settings: Settings, file: Path, choice: RestoreChoice, *, without_current: bool
    ) -> RestoreResult: ...


class Wiring(Protocol):
    serve: Callable[[Settings], None]
    has_store: Callable[[Settings], bool]
    make_key: Callable[[Path], None]
    prepare_store: PrepareStore
    check_store: Callable[[Settings], Iterator[tuple[str, str | None]]]
    open_local: Callable[[Settings], AbstractAsyncContextManager[LocalService]]
    back_up_store: Callable[[Settings, Path, bool, Progress], Backup]
    restore_preview: Callable[[Settings, Path], RestorePreview]
    restore_store: RestoreStore
    copy_store: Callable[[Settings, StoreUrl, StoreUrl, Progress], CopyResult]
    open_import: Callable[[Settings], AbstractAsyncContextManager[LocalImport]]
    lock_import: Callable[[Settings], AbstractAsyncContextManager[None]]
    open_datahub: Callable[[DataHubUrl], AbstractAsyncContextManager[DataHubSource]]
    send_test_mail: Callable[[Settings, str], tuple[SendResult, str]]
    open_index: Callable[[Settings], Engine]
    diagnose: Callable[[Settings, str | None], Iterator[Diagnostic]]
    server_version: Callable[[str], str | None]


def need_store(wiring: Wiring, settings: Settings) -> None:
    """Fail where there is no store: a mistyped folder must not become a new, empty store."""
    if wiring.has_store(settings):
        return
    store = settings.store_url
    if isinstance(store, SqliteUrl):
        missing = f"There is no store at {store.path.absolute()}."
        fix = "Name the service's folder with --data-dir or WATCHWORD_DATA_DIR."
    else:
        missing = f"There is no store at {store}, schema {settings.database_schema}."
        fix = "Use the service's settings WATCHWORD_DATABASE_URL and WATCHWORD_DATABASE_SCHEMA."
    from watchword.client.profiles import DEFAULT_URL, read_environment  # a server does not load the client

    url = read_environment().url or DEFAULT_URL
    if wiring.server_version(url) is None:
        raise OperatorError(f"{missing} {fix} To create a new store there: watchword db migrate")
    # The running service probably has the store that the user means.
    raise OperatorError(f"{missing} The server at {url} uses another store. {fix}")


def run_locally(wiring: Wiring, settings: Settings, action: Callable[[LocalService], Awaitable[T]]) -> T:
    """Use the service on an existing store of this version; only `serve` and `db migrate` migrate."""
    import asyncio

    need_store(wiring, settings)
    wiring.prepare_store(settings, may_migrate=False)

    async def act() -> T:
        async with wiring.open_local(settings) as service:
            return await action(service)

    return asyncio.run(act())
