"""The checkup behind `doctor`: looks at everything a start rests on, and changes nothing.

A check yields findings. To add one, write it beside those of its kind and name it in `look_over`.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from watchword.checkup.index import index
from watchword.checkup.machine import data_folder, file_limit, is_closed, tls
from watchword.checkup.policies import account_managers, policy_file
from watchword.checkup.service import address, ask, ask_own, exposure, named_server
from watchword.checkup.store import clock, master_key, store
from watchword.domain.diagnostics import Diagnostic, warn
from watchword.domain.ports import Clock
from watchword.domain.store_urls import LastStart, PostgresUrl, SqliteUrl
from watchword.settings import Settings
from watchword.stores.sqlite.glance import Glance, glance

if TYPE_CHECKING:
    from watchword.stores.postgres.glance import DatabaseGlance


def look_over(
    settings: Settings, now: Clock, ask_index: Callable[[], str], url: str | None, *, running: bool
) -> Iterator[Diagnostic]:
    """`url` is where commands find their server, if that is set; `running`: whether a service runs on the folder."""
    place, closed = settings.place, is_closed(settings.data_dir)
    started: LastStart | None = None
    elsewhere = None if closed or _has_store(settings) else (url and ask(url)) or None
    if elsewhere is None or settings.data_dir.exists():
        yield from data_folder(settings)
    if elsewhere is not None:
        what = f"there is no store in {settings.data_dir}; the server at WATCHWORD_URL, {url}, uses another folder"
        yield warn("store", what, "Name that server's folder with --data-dir, if it is on this machine.")
    elif isinstance(place, SqliteUrl) and closed:
        pass  # nothing of it can be seen
    elif isinstance(place, SqliteUrl):
        file = glance(place.path) if place.path.is_file() else None
        started = None if file is None else file.started
        yield from _file(settings, place, file, now)
    else:
        from watchword.stores.postgres import glance as postgres

        database = postgres.glance(place, now)
        started = database.started
        yield from _database(settings, place, database)
    if settings.index_url is not None or not (closed or elsewhere):
        yield from index(settings, ask_index)
    yield from policy_file(settings)
    answer = elsewhere or (ask_own(settings, started) if running or closed else None)
    if elsewhere is None:
        yield from address(settings, started, answer, running=running)
    yield from tls(settings)
    yield from exposure(settings, answer)
    yield from named_server(url, started)
    yield from file_limit()


def _has_store(settings: Settings) -> bool:
    place = settings.place
    return not isinstance(place, SqliteUrl) or place.path.exists() or place.path.is_symlink()


def _file(settings: Settings, place: SqliteUrl, seen: Glance | None, now: Clock) -> Iterator[Diagnostic]:
    yield from store(place.path, seen)
    is_new = seen is None or (seen.sealed is not None and seen.sealed.salt is None)
    yield from master_key(settings, None if seen is None else seen.sealed, is_new=is_new)
    yield from clock(seen, now)
    yield from account_managers(() if seen is None else seen.gains)


def _database(settings: Settings, place: PostgresUrl, seen: "DatabaseGlance") -> Iterator[Diagnostic]:
    from watchword.checkup.database import database, database_clock

    yield from database(settings, place, seen)
    if seen.problem is None:
        yield from master_key(settings, seen.sealed, is_new=False)
    yield from database_clock(seen)
    yield from account_managers(seen.gains)
