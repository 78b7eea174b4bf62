"""What the machine gives: folder, disk, certificate, limits."""

import os
import resource
import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.files import owner_in_the_way
from watchword.settings import Settings
from watchword.signing.certificates import validity

LITTLE_BYTES = 1024**3
TOO_LITTLE_BYTES = 64 * 1024**2
SOON = timedelta(days=30)
FEW_FILES = 4_096


def is_closed(folder: Path) -> bool:
    """Whether this user may not look into it."""
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    except PermissionError:  # nor into a folder above it
        return True


def _not_ours(folder: Path) -> Diagnostic:
    what, found = f"{folder} cannot be read and written by this user", owner_in_the_way(folder)
    if found is None:
        return bad("data folder", what, f"chmod 700 {folder}")
    return bad("data folder", f"{what}; {found[0]} belongs to user {found[1]}", f"Run this as user {found[1]}.")


def data_folder(settings: Settings) -> Iterator[Diagnostic]:
    folder = settings.data_dir
    if is_closed(folder):
        yield _not_ours(folder)
        return
    if folder.is_symlink() and not folder.exists():
        yield bad("data folder", f"{folder} is a link that leads nowhere", "Name another with --data-dir.")
        return
    if not folder.exists():
        yield warn("data folder", f"{folder} is not there", "It is made by the first start: watchword serve")
        return
    mode = folder.stat().st_mode & 0o777
    if not folder.is_dir():
        yield bad("data folder", f"{folder} is no folder", "Name another with WATCHWORD_DATA_DIR or --data-dir.")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield _not_ours(folder)
    elif mode & 0o077:
        level = bad if mode & 0o002 else warn
        yield level("data folder", f"{folder} is open to others (mode {mode:04o})", f"chmod 700 {folder}")
    else:
        yield ok("data folder", f"{folder} is for its owner alone")
    yield from _room(folder)


def _room(folder: Path) -> Iterator[Diagnostic]:
    free = shutil.disk_usage(folder).free
    room = f"{free / 1_000_000:,.0f} MB are free on the disk of {folder}"
    fix = "Make room: a full disk stops every write."
    if free < TOO_LITTLE_BYTES:
        yield bad("disk", room, fix)
    elif free < LITTLE_BYTES:
        yield warn("disk", room, fix)
    else:
        yield ok("disk", room)


def tls(settings: Settings) -> Iterator[Diagnostic]:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, "")
        begins, ends = validity(settings.tls_cert)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        fix = "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must name a certificate chain and its private key, as PEM."
        yield bad("TLS", f"{settings.tls_cert} and {settings.tls_key} cannot be used: {problem}", fix)
        return
    yield _valid(settings.tls_cert, begins, ends)
    if settings.tls_key.stat().st_mode & 0o077:
        yield warn("TLS", f"{settings.tls_key} can be read by others", f"chmod 600 {settings.tls_key}")


def _valid(path: Path, begins: datetime, ends: datetime) -> Diagnostic:
    now = datetime.now(UTC)
    fix = "Renew the certificate, then start the service again."
    if ends <= now:
        return bad("TLS", f"{path} ended on {ends:%Y-%m-%d}", fix)
    if begins > now:
        return bad(
            "TLS", f"{path} is valid only from {begins:%Y-%m-%d}", "Check the clock, or use another certificate."
        )
    if ends - now < SOON:
        return warn("TLS", f"{path} ends on {ends:%Y-%m-%d}", fix)
    return ok("TLS", f"{path} and its key belong together; valid until {ends:%Y-%m-%d}")


def file_limit() -> Iterator[Diagnostic]:
    """The server raises its own limit as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        fix = f"Raise it to {FEW_FILES} or more (ulimit -Hn, or LimitNOFILE of the supervisor)."
        yield warn("open files", f"a process may open {hard}, which bounds its connections", fix)
    else:
        yield ok("open files", "a process may open enough of them")
