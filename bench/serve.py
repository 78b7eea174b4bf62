"""One contender, in a process of its own: `python -m bench.serve NAME PORT FOLDER [SETTING=VALUE...]`."""

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

from granian.constants import Interfaces

from bench.bare import bare, bare_rsgi, serve_app
from watchword.app import wiring
from watchword.authority.callers import Bearer
from watchword.settings import Settings, load
from watchword.stores.postgres import PostgresStore
from watchword.stores.postgres_verify import STATEMENT, bearer_of
from watchword.tokens.expiry_jobs import ExpiryNotices
from watchword.tokens.usage_jobs import UsageRecorder

LOAD_APP = wiring.load_app
SWITCH, SEEN = "record-uses", "records-uses"
SWITCH_SECONDS = 0.05
PAUSE, PAUSED = "pause-notices", "paused-notices"


async def find_one(self: PostgresStore, token_id: str) -> Bearer | None:
    """What most services do: each verification a query of its own, on a connection of the pool."""
    found = await self._db.fetch(STATEMENT, [token_id])
    return bearer_of(found[0]) if found else None


def load_one_by_one(settings: Settings, folder: Path) -> Any:
    """The same service, whose verifications share no read."""
    PostgresStore.find_bearer = find_one  # type: ignore[method-assign]
    return LOAD_APP(settings, folder)


def load_switched(settings: Settings, folder: Path) -> Any:
    """The same service, which records uses while a file in its data folder says so."""
    record, flush = UsageRecorder.record, UsageRecorder.flush
    seen = ""

    def record_if_wanted(self: UsageRecorder, token_id: str, at: int, client: str) -> None:
        if seen == "recorded":
            record(self, token_id, at, client)

    async def flush_if_wanted(self: UsageRecorder) -> bool:
        """What was gathered waits."""
        return await flush(self) if seen == "recorded" else True

    def watch() -> None:
        nonlocal seen
        while True:
            wanted = _read(settings.data_dir / SWITCH)
            if wanted != seen and wanted in {"recorded", "unrecorded"}:
                seen = wanted
                (settings.data_dir / SEEN).write_text(wanted)
            time.sleep(SWITCH_SECONDS)

    # Before the app is loaded: it may keep the bound methods.
    UsageRecorder.record, UsageRecorder.flush = record_if_wanted, flush_if_wanted  # type: ignore[method-assign]
    threading.Thread(target=watch, daemon=True).start()
    return LOAD_APP(settings, folder)


def load_pausing(settings: Settings, folder: Path) -> Any:
    """The same service, which begins no step of its expiry notices while a file is in its data folder."""
    rest = ExpiryNotices.rest

    async def rest_and_wait(self: ExpiryNotices, began: float) -> None:
        await rest(self, began)
        (settings.data_dir / PAUSED).touch()
        while (settings.data_dir / PAUSE).exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(SWITCH_SECONDS)

    ExpiryNotices.rest = rest_and_wait  # type: ignore[method-assign]
    return LOAD_APP(settings, folder)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main(name: str, port: str, folder: str, *told: str) -> None:
    # The ten actors of a small store create more tokens than their share of a processor allows.
    unlimited = {"actor_processor_percent": "0"}
    settings = load({"port": port, "data_dir": folder, **unlimited, **dict(one.split("=", 1) for one in told)}, {})
    match name:
        case "bare":
            serve_app(bare, settings, Interfaces.ASGI)
        case "bare-rsgi":
            serve_app(bare_rsgi, settings, Interfaces.RSGI)
        case "watchword" | "watchword-postgres":
            wiring.serve(settings)
        case "watchword-postgres-single":
            wiring.load_app = load_one_by_one  # type: ignore[assignment]
            wiring.serve(settings)
        case "watchword-switched":
            wiring.load_app = load_switched  # type: ignore[assignment]
            wiring.serve(settings)
        case "watchword-pausing":
            wiring.load_app = load_pausing  # type: ignore[assignment]
            wiring.serve(settings)
        case _:
            raise SystemExit(f"There is no contender {name}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
