"""What commands do with a store as a whole: look at it, check it, back it up, restore it, copy it."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.domain.actors import system_precondition
from watchword.domain.diagnostics import Diagnostic
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import SqliteUrl, StoreUrl
from watchword.engines.embedded.index_file import look as look_at_index
from watchword.settings import Settings
from watchword.signing.keyring import prove_opens
from watchword.signing.sealing import MasterKeyError, Sealer, load_master_key
from watchword.stores.keeping import Prove, back_up, check, examine, is_there, preview, restore
from watchword.wiring import open_index, prepare_folder, system_clock

if TYPE_CHECKING:
    from watchword.domain.backups import Backup, Carried, Choice, Restored, RestorePreview
    from watchword.stores.sqlite.keys import Sealed
    from watchword.stores.transfer import Progress


def has_store(settings: Settings) -> bool:
    return is_there(settings.place)


def check_store(settings: Settings) -> Iterator[tuple[str, str | None]]:
    return check(settings.place)


def back_up_store(settings: Settings, file: Path, force: bool, progress: "Progress") -> "Backup":
    from watchword.stores.sqlite.backup import sealed_in

    if file.resolve() == settings.master_key_path.resolve():
        raise OperatorError(f"FILE must not be the master key; {file} is. Name another file.")
    made = back_up(settings.place, file, system_clock(), force=force, progress=progress)
    return replace(made, key_opens=_key_opens(settings, sealed_in(file)))


def _key_opens(settings: Settings, sealed: "Sealed") -> bool | None:
    if sealed.salt is None or not settings.master_key_path.exists():
        return None
    try:
        _prove_key(settings, "The backup")(sealed)
    except OperatorError:
        return False
    return True


def restore_preview(settings: Settings, file: Path) -> "RestorePreview":
    return preview(settings.place, file, system_clock(), _prove_key(settings, f"The backup {file}"))


def restore_store(settings: Settings, file: Path, choice: "Choice") -> "Restored":
    prove = _prove_key(settings, f"The backup {file}")
    examine(settings.place, file, system_clock(), prove)
    if not settings.is_shared:
        prepare_folder(settings.data_dir)
    with _no_server_running(settings, settings.place):
        return restore(settings.place, file, choice, system_precondition("command line"), system_clock(), prove)


def copy_store(settings: Settings, source: StoreUrl, target: StoreUrl, progress: "Progress") -> "Carried":
    from watchword.stores.copying import copy

    prove = _prove_key(settings, f"The store {source}")
    with _no_server_running(settings, source, target):
        return copy(source, target, system_clock(), prove, progress)


@contextmanager
def _no_server_running(settings: Settings, *places: StoreUrl) -> Iterator[None]:
    """No server runs on the folders of these files meanwhile. A database knows itself who runs on it."""
    from watchword.http.run_folder import no_server_running

    files = [place for place in places if isinstance(place, SqliteUrl)]
    folders = {settings.data_dir if file == settings.place else file.path.parent for file in files}
    with ExitStack() as stack:
        for folder in sorted({folder.resolve(): folder for folder in folders}.values()):
            if (folder / "run").is_dir() or (folder == settings.data_dir and folder.is_dir()):
                stack.enter_context(no_server_running(folder))
        yield


def _prove_key(settings: Settings, what: str) -> Prove:
    def prove(sealed: "Sealed") -> None:
        if sealed.salt is None:
            return
        sealer = Sealer(load_master_key(settings.master_key_path, create=False))
        try:
            prove_opens(sealer, sealed.salt, sealed.private_keys)
        except MasterKeyError:
            raise OperatorError(
                f"{what} was sealed with another master key than {settings.master_key_path}. Put the one "
                "that was in use when it was made in its place, or name it with --master-key-file."
            ) from None

    return prove


def look_over(settings: Settings, url: str | None) -> Iterator[Diagnostic]:
    from watchword import checkup
    from watchword.http.run_folder import is_running

    def ask_index() -> str:
        return look_at_index(settings.index_path) if settings.index_url is None else asyncio.run(_probe(settings))

    try:
        running = is_running(settings.data_dir)
    except PermissionError:  # of another user's folder; the checkup says so
        running = False
    return checkup.look_over(settings, system_clock, ask_index, url, running=running)


def server_version(url: str) -> str | None:
    """The version of the Watchword that answers at this address, if one does."""
    from watchword.checkup.service import ask

    answer = ask(url)
    return None if answer is None else answer.version


async def _probe(settings: Settings) -> str:
    engine = open_index(settings)
    try:
        return await engine.probe()
    finally:
        await engine.close()
