"""The embedded search engine: one file, any number of processes that ask, one process that works."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchword.engines.embedded.engine import EmbeddedEngine


def open_engine(path: Path) -> "EmbeddedEngine":
    """On the index in this file, which is made if need be. Its tasks are done by the process that `helper` keeps, which
    does without what asks.
    """
    from watchword.engines.embedded.engine import EmbeddedEngine
    from watchword.engines.embedded.file import prepare

    return EmbeddedEngine(path, prepare(path), _clock)


def _clock() -> int:
    return time.time_ns() // 1_000_000
