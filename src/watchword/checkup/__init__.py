"""The checkup behind `doctor`: looks at everything a start rests on, and changes nothing.

A check yields findings. To add one, write it beside those of its kind and name it in `look_over`.
"""

from collections.abc import Callable, Iterator

from watchword.checkup.index import index
from watchword.checkup.machine import address, data_folder, exposure, file_limit, tls
from watchword.checkup.policies import account_managers, policy_file
from watchword.checkup.store import clock, master_key, store
from watchword.domain.findings import Finding
from watchword.domain.places import DatabasePlace, FilePlace
from watchword.domain.ports import Clock
from watchword.settings import Settings
from watchword.stores.sqlite.glance import glance


def look_over(settings: Settings, now: Clock, ask_index: Callable[[], str], *, running: bool) -> Iterator[Finding]:
    place = settings.place
    yield from data_folder(settings)
    if isinstance(place, FilePlace):
        yield from _file(settings, place, now)
    else:
        yield from _database(settings, place, now)
    yield from index(settings, ask_index)
    yield from policy_file(settings)
    yield from address(settings, running=running)
    yield from tls(settings)
    yield from exposure(settings)
    yield from file_limit()


def _file(settings: Settings, place: FilePlace, now: Clock) -> Iterator[Finding]:
    seen = glance(place.path) if place.path.is_file() else None
    yield from store(place.path, seen)
    is_new = seen is None or (seen.sealed is not None and seen.sealed.salt is None)
    yield from master_key(settings, None if seen is None else seen.sealed, is_new=is_new)
    yield from clock(seen, now)
    yield from account_managers(() if seen is None else seen.gains)


def _database(settings: Settings, place: DatabasePlace, now: Clock) -> Iterator[Finding]:
    from watchword.checkup.database import database, database_clock
    from watchword.stores.postgres import glance as postgres

    seen = postgres.glance(place, now)
    yield from database(settings, place, seen)
    if seen.problem is None:
        yield from master_key(settings, seen.sealed, is_new=False)
    yield from database_clock(seen)
    yield from account_managers(seen.gains)
