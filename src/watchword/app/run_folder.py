"""The run folder: which servers run on a data folder.

Each server locks a file in its own folder below `run`. It takes that lock while it holds the start lock `run/lock`. So
a process that holds the start lock knows that no server starts, and if all other locks are free, that none runs.
"""

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from watchword.basics.errors import OperatorError
from watchword.basics.files import open_lock

TURN_SECONDS = 5.0


@contextmanager
def run_folder(data_dir: Path) -> Iterator[Path]:
    """A locked folder that the workers of this server share. Removes the folders of killed servers."""
    with ExitStack() as stack:
        with _start_lock(data_dir) as parent:
            for old in parent.glob("*/lock"):
                with suppress(OSError), os.fdopen(open_lock(old)) as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old.parent)
            folder = Path(tempfile.mkdtemp(dir=parent))
            fcntl.flock(stack.enter_context(os.fdopen(open_lock(folder / "lock"))), fcntl.LOCK_EX)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


async def as_only_worker(lock: Path, task: Callable[[], Awaitable[None]]) -> None:
    """Run the task in one of the workers that share this lock. When that one ends, another takes over."""
    with os.fdopen(open_lock(lock)) as file:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(TURN_SECONDS)
        await task()


@contextmanager
def no_server_running(data_dir: Path) -> Iterator[None]:
    """Fails if a server runs, and makes a server that starts wait for the end of the block."""
    with _start_lock(data_dir):
        if is_running(data_dir):
            raise OperatorError(f"The service runs on {data_dir}. Stop it first, then try again.")
        yield


def is_running(data_dir: Path) -> bool:
    """Changes nothing."""
    return any(_is_held(lock) for lock in (data_dir / "run").glob("*/lock"))


@contextmanager
def _start_lock(data_dir: Path) -> Iterator[Path]:
    parent = data_dir / "run"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(open_lock(parent / "lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield parent


def _is_held(lock: Path) -> bool:
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # the server has just stopped
        return False
    return False
