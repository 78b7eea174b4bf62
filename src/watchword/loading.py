"""How modules are loaded: quickly, and into memory that processes share. What is loaded stays for good, so that to look
through it for garbage, over and over while it grows, would take a tenth of the time.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def load_quickly() -> None:
    """To be called before anything is loaded: garbage is looked for when there may be a lot of it."""
    gc.set_threshold(100_000)


def settle_memory() -> None:
    """To be called before workers are forked, when everything is loaded: it is never looked through again, and so not
    copied for each of them by being looked at. What they make from now on is looked through as ever.
    """
    gc.freeze()
    gc.set_threshold(700)


@contextmanager
def left_out(*packages: str) -> Iterator[None]:
    """For those who load a package wherever it is installed and have no use for it with us. It can be loaded later."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type] # None says that there is no such module
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
