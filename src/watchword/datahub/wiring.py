"""What `watchword import` opens: DataHub, the store that it imports into, and the lock of one import at a time."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from watchword.database.transaction import ignore
from watchword.datahub.rules import DataHubSource
from watchword.datahub.service import DataHubImport
from watchword.datahub.store import import_lock
from watchword.setting_values import DataHubUrl
from watchword.settings import Settings
from watchword.stores import open_store

IMPORT_SECONDS = 60


@asynccontextmanager
async def open_import(settings: Settings) -> AsyncIterator[Callable[..., DataHubImport]]:
    """Makes runs of an import. Its transactions may take longer than a request may."""
    patient = replace(settings, database_timeout=max(settings.database_timeout, IMPORT_SECONDS))
    store = await open_store(patient.store_url, lambda: time.time_ns() // 1_000_000, ignore)
    try:
        yield partial(DataHubImport, store, settings.root_actor)
    finally:
        await store.close()


def lock_import(settings: Settings) -> AbstractAsyncContextManager[None]:
    return import_lock(settings.store_url)


def open_datahub(url: DataHubUrl) -> AbstractAsyncContextManager[DataHubSource]:
    from watchword.datahub.source import open_source

    return open_source(url)
