"""What commands ask of the wiring, which `__main__` hands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the service is loaded by the wiring, when a command asks for it
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from watchword.domain.backups import Backup, CopyResult, RestoreChoice, RestorePreview, RestoreResult
    from watchword.domain.diagnostics import Diagnostic
    from watchword.domain.engine import Engine
    from watchword.domain.indices import IndexNames
    from watchword.domain.ports import Keys
    from watchword.domain.store_urls import SchemaVersions, StoreUrl
    from watchword.service.tokens import Tokens
    from watchword.settings import Settings

Told = Callable[[int, int], None]
"""Told how much is done, and of how much."""


class LocalService(Protocol):
    @property
    def tokens(self) -> Tokens: ...
    @property
    def keys(self) -> Keys: ...


class PrepareStore(Protocol):
    def __call__(self, settings: Settings, *, may_migrate: bool = True) -> SchemaVersions: ...


class Backstage(Protocol):
    serve: Callable[[Settings], None]
    has_store: Callable[[Settings], bool]
    make_key: Callable[[Path], None]
    prepare_store: PrepareStore
    check_store: Callable[[Settings], Iterator[tuple[str, str | None]]]
    settle: Callable[[Settings], object]
    open_local: Callable[[Settings], AbstractAsyncContextManager[LocalService]]
    back_up_store: Callable[[Settings, Path, bool, Told], Backup]
    restore_preview: Callable[[Settings, Path], RestorePreview]
    restore_store: Callable[[Settings, Path, RestoreChoice], RestoreResult]
    copy_store: Callable[[Settings, StoreUrl, StoreUrl, Told], CopyResult]
    open_index: Callable[[Settings], Engine]
    index_names: Callable[[Settings], IndexNames]
    diagnose: Callable[[Settings, str | None], Iterator[Diagnostic]]
    server_version: Callable[[str], str | None]
