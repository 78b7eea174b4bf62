"""The checkup behind `doctor`: looks at everything a start rests on, and changes nothing.

A check yields findings. To add one, write it beside those of its kind and name it in `look_over`.
"""

from collections.abc import Callable, Iterator

from watchword.checkup.index import index
from watchword.checkup.machine import address, data_folder, exposure, file_limit, tls
from watchword.checkup.policies import policy_file
from watchword.checkup.store import clock, master_key, store
from watchword.domain.findings import Finding
from watchword.domain.ports import Clock
from watchword.settings import Settings
from watchword.stores.sqlite.glance import Glance, glance


def look_over(settings: Settings, now: Clock, ask_index: Callable[[], str], *, running: bool) -> Iterator[Finding]:
    seen: Glance | None = glance(settings.store_path) if settings.store_path.is_file() else None
    yield from data_folder(settings)
    yield from store(settings, seen)
    yield from master_key(settings, seen)
    yield from clock(seen, now)
    yield from index(settings, ask_index)
    yield from policy_file(settings)
    yield from address(settings, running=running)
    yield from tls(settings)
    yield from exposure(settings)
    yield from file_limit()
