"""The store, the key that opens it, and the clock by which its tokens end."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.errors import OperatorError
from watchword.domain.ports import Clock
from watchword.settings import Settings
from watchword.signing.keyring import prove_opens
from watchword.signing.sealing import Sealer, load_master_key
from watchword.stores.sqlite.glance import Glance
from watchword.stores.sqlite.keys import Sealed

YEARS = range(2025, 2100)
BEHIND_MS = 60_000
JUMP_SECONDS = 1.0


def store(path: Path, seen: Glance | None) -> Iterator[Diagnostic]:
    if seen is None and (path.exists() or path.is_symlink()):
        yield bad("store", f"{path} is there and no file", "Move it away, or name another data folder.")
        return
    if seen is None:
        yield warn("store", f"there is none at {path}", "It is made by the first start: watchword serve")
        return
    yield from _private(path)
    if seen.problem is not None:
        yield bad("store", f"{path}: {seen.problem.rstrip('.')}", "Put a backup back: watchword db restore --help")
    elif seen.version < seen.latest:
        fix = "The next start brings it up to date, or: watchword db migrate"
        yield warn("store", f"{path} is of schema version {seen.version}, this Watchword's is {seen.latest}", fix)
    else:
        how = "sound at a quick look" if seen.read_whole else "opens (too large for a quick look: watchword db check)"
        yield ok("store", f"{path} is of schema version {seen.version}, {how}; tokens not revoked: {seen.tokens:,}")


def _private(path: Path) -> Iterator[Diagnostic]:
    for file in [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))]:
        if file.exists() and file.stat().st_mode & 0o077:
            yield bad("store", f"{file} can be read or changed by others", f"chmod 600 {file}")


def master_key(settings: Settings, sealed: Sealed | None, *, is_new: bool) -> Iterator[Diagnostic]:
    """`is_new` where the first start would make one."""
    path = settings.master_key_path
    if is_new and not path.exists() and settings.master_key_file is None:
        yield warn("keys", f"there is no master key at {path}", "It is made by the first start: watchword serve")
        return
    try:
        sealer = Sealer(load_master_key(path, create=False))
        if sealed is None or sealed.salt is None:
            yield ok("keys", f"{path} is a master key, with nothing here to open")
            return
        prove_opens(sealer, sealed.salt, sealed.private_keys)
    except OperatorError as error:
        sentence, _, fix = str(error).partition(". ")
        yield bad("keys", sentence.rstrip("."), fix or "Put the master key that belongs to this store there.")
    else:
        yield ok("keys", f"{path} opens the store's salt and signing keys ({len(sealed.private_keys)})")


def clock(seen: Glance | None, now: Clock) -> Iterator[Diagnostic]:
    moment = datetime.fromtimestamp(now() / 1000, UTC)
    fix = "Set this machine's clock, and keep it set by NTP: tokens end by it."
    newest = None if seen is None else seen.newest
    if moment.year not in YEARS:
        yield bad("clock", f"it says {moment:%Y-%m-%d}", fix)
    elif newest is not None and newest - now() > BEHIND_MS:
        ahead = datetime.fromtimestamp(newest / 1000, UTC)
        yield bad(
            "clock",
            f"it says {moment:%Y-%m-%d %H:%M:%SZ}, but the store's newest entry is of {ahead:%Y-%m-%d %H:%M:%SZ}",
            fix,
        )
    elif _jumps(now):
        yield warn("clock", "it does not move at the pace of time", fix)
    elif seen is not None:
        yield ok("clock", f"it says {moment:%Y-%m-%d %H:%M:%SZ}, which fits the store")


def _jumps(now: Clock) -> bool:
    """Whether the wall clock and the one that cannot be set disagree about how long a moment was."""
    wall, steady = now(), time.monotonic()
    time.sleep(0.05)
    return abs((now() - wall) / 1000 - (time.monotonic() - steady)) > JUMP_SECONDS
