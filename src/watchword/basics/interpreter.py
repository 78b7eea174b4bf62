"""Tricks on the Python interpreter, each with its reason: garbage collection, modules not to load, a quick exit."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn


def load_quickly() -> None:
    """Call before the imports. Loaded modules are never garbage, and to search them while they load takes a tenth of
    the time.
    """
    gc.set_threshold(100_000)
    # The server library's allocator (jemalloc) returns memory after 0.2 seconds, not ten, once it is free.
    os.putenv("_RJEM_MALLOC_CONF", "dirty_decay_ms:200,muzzy_decay_ms:0,background_thread:true")


def freeze_loaded() -> None:
    """Call before workers are forked. The collector no longer touches loaded modules, so the workers share their
    memory.
    """
    gc.freeze()
    gc.set_threshold(700)


@contextmanager
def without_modules(*names: str) -> Iterator[None]:
    """Hide installed packages from a library that imports them if it can, but does not need them here: they double its
    loading time. They can be imported after the block.
    """
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type] # None means that there is no such module
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def without_httpx_command() -> AbstractContextManager[None]:
    """For the import of httpx. It imports its own command line if it can, which takes as long as the rest of httpx, and
    has no setting against that.
    """
    return without_modules("httpx._main")


def exit_now() -> NoReturn:
    """After everything is closed and flushed: the interpreter's own teardown takes longer than the shutdown did."""
    os._exit(0)
