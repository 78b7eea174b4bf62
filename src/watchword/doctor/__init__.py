"""`doctor`: check everything that a start needs, and change nothing.

Each check yields diagnostics. To add one, write it beside its kind and call it in `diagnose`.
"""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from watchword.doctor.service import ask, ask_own_service, exposure, listen_address, server_of_commands, tls
from watchword.doctor.store import store, store_in_database
from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.ports import Clock
from watchword.domain.store_urls import LastStart, SqliteUrl
from watchword.files import owner_in_the_way
from watchword.policyfile import PolicyFileError, read_policy_file
from watchword.settings import Settings
from watchword.stores.admin.summary import summarize

LOW_DISK_BYTES = 1024**3
FULL_DISK_BYTES = 64 * 1024**2
FEW_FILES = 4_096


def diagnose(
    settings: Settings, now: Clock, probe_index: Callable[[], str], url: str | None, *, running: bool
) -> Iterator[Diagnostic]:
    """`url` is the address that commands use, if it is set. `running`: whether a service runs on the data folder.
    `probe_index` describes the search index, or raises.
    """
    store_url, closed = settings.store_url, _is_closed(settings.data_dir)
    last_start: LastStart | None = None
    elsewhere = None if closed or _has_store(settings) else (url and ask(url)) or None
    if elsewhere is None or settings.data_dir.exists():
        yield from _data_folder(settings.data_dir)
    if elsewhere is not None:
        what = f"there is no store in {settings.data_dir}; the server at WATCHWORD_URL, {url}, uses another folder"
        yield warn("store", what, "Name that server's folder with --data-dir, if it is on this machine.")
    elif isinstance(store_url, SqliteUrl):
        if not closed:
            summary = summarize(store_url, now) if store_url.path.is_file() else None
            last_start = None if summary is None else summary.last_start
            yield from store(settings, store_url.path, summary, now)
    else:
        summary = summarize(store_url, now)
        last_start = summary.last_start
        yield from store_in_database(settings, store_url, summary)
    if settings.index_url is not None or not (closed or elsewhere):
        yield from _index(settings, probe_index)
    yield from _policy_file(settings.policy_file)
    answer = elsewhere or (ask_own_service(settings, last_start) if running or closed else None)
    if elsewhere is None:
        yield from listen_address(settings, last_start, answer, running=running)
    yield from tls(settings)
    yield from exposure(settings, answer)
    yield from server_of_commands(url, last_start)
    yield from _open_files()


def _has_store(settings: Settings) -> bool:
    url = settings.store_url
    return not isinstance(url, SqliteUrl) or url.path.exists() or url.path.is_symlink()


def _is_closed(folder: Path) -> bool:
    """Whether this user may not read the folder."""
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    except PermissionError:  # for a folder above it
        return True


def _no_access(folder: Path) -> Diagnostic:
    what, found = f"this user cannot read and write {folder}", owner_in_the_way(folder)
    if found is None:
        return bad("data folder", what, f"chmod 700 {folder}")
    return bad("data folder", f"{what}; {found[0]} belongs to user {found[1]}", f"Run this as user {found[1]}.")


def _data_folder(folder: Path) -> Iterator[Diagnostic]:
    if _is_closed(folder):
        yield _no_access(folder)
        return
    if folder.is_symlink() and not folder.exists():
        yield bad("data folder", f"{folder} is a link to a missing folder", "Name another with --data-dir.")
        return
    if not folder.exists():
        yield warn("data folder", f"{folder} does not exist", "The first start creates it: watchword serve")
        return
    if not folder.is_dir():
        yield bad("data folder", f"{folder} is not a folder", "Name another with WATCHWORD_DATA_DIR or --data-dir.")
        return
    mode = folder.stat().st_mode & 0o777
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield _no_access(folder)
    elif mode & 0o077:
        level = bad if mode & 0o002 else warn
        yield level("data folder", f"{folder} is open to other users (mode {mode:04o})", f"chmod 700 {folder}")
    else:
        yield ok("data folder", f"only its owner can access {folder}")
    yield from _disk(folder)


def _disk(folder: Path) -> Iterator[Diagnostic]:
    free = shutil.disk_usage(folder).free
    what = f"{free / 1_000_000:,.0f} MB are free on the disk of {folder}"
    fix = "Free some space: a full disk stops every write."
    if free < FULL_DISK_BYTES:
        yield bad("disk", what, fix)
    elif free < LOW_DISK_BYTES:
        yield warn("disk", what, fix)
    else:
        yield ok("disk", what)


def _index(settings: Settings, probe: Callable[[], str]) -> Iterator[Diagnostic]:
    if settings.index_url is None and not settings.index_path.exists():
        yield ok("index", f"{settings.index_path} does not exist yet; the first start creates it")
        return
    where = settings.index_url or settings.index_path
    try:
        yield ok("index", f"{where} answers: {probe()}")
    except OperatorError as error:
        sentence, _, fix = str(error).partition(". ")
        yield bad("index", sentence.rstrip("."), fix or "Move it away, or name another data folder.")
    except Fault as fault:
        fix = "Check that it runs, and check WATCHWORD_INDEX_URL and its credentials. Tokens work without the index."
        yield bad("index", f"{where}: {fault.message.rstrip('.')}", fix)


def _policy_file(path: Path | None) -> Iterator[Diagnostic]:
    if path is None:
        yield ok("policy file", "none is set (WATCHWORD_POLICY_FILE)")
        return
    try:
        declared = read_policy_file(path)
    except PolicyFileError as error:
        yield bad("policy file", str(error).rstrip("."), "Correct the file: the service does not start with it.")
    else:
        yield ok("policy file", f"{path} declares {len(declared.policies)} policies of the set {declared.set_name}")


def _open_files() -> Iterator[Diagnostic]:
    """The server raises its soft limit to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        fix = f"Raise the limit to {FEW_FILES} or more (ulimit -Hn, or LimitNOFILE of the supervisor)."
        yield warn("open files", f"a process may open {hard} files, which limits its connections", fix)
    else:
        yield ok("open files", "the limit is high enough")
