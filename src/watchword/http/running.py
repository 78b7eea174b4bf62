"""Who runs on a data folder: each server holds a lock in a folder of its own below `run`, taken through one gate.

Whoever holds the gate knows that no server starts meanwhile; whoever finds every lock free knows that none runs.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from watchword.domain.errors import OperatorError
from watchword.files import open_lock


@contextmanager
def run_folder(data_dir: Path) -> Iterator[Path]:
    """A folder for what the workers share while they run, held by a lock; those of killed servers are removed."""
    with ExitStack() as stack:
        with _gate(data_dir) as parent:
            for old in parent.glob("*/lock"):
                with suppress(OSError), os.fdopen(open_lock(old)) as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old.parent)
            folder = Path(tempfile.mkdtemp(dir=parent))
            fcntl.flock(stack.enter_context(os.fdopen(open_lock(folder / "lock"))), fcntl.LOCK_EX)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def held_off(data_dir: Path) -> Iterator[None]:
    """While the block runs no server does: a running one is refused, and one that starts waits for the end."""
    with _gate(data_dir):
        if is_running(data_dir):
            raise OperatorError(f"The service runs on {data_dir}. Stop it first, then try again.")
        yield


def is_running(data_dir: Path) -> bool:
    """Looks, and leaves everything as it was."""
    return any(_is_held(lock) for lock in (data_dir / "run").glob("*/lock"))


@contextmanager
def _gate(data_dir: Path) -> Iterator[Path]:
    parent = data_dir / "run"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(open_lock(parent / "lock")) as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield parent


def _is_held(lock: Path) -> bool:
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # it ended this moment
        return False
    return False
