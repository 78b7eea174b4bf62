"""The embedded engine on a full or failing disk: the task fails and nothing is lost."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.engine_process import problems, working
from tests.engines.harness import QUICK, UNTIL, EngineHarness, Run, old, row, staying, young
from tests.support.disks import small_disk
from tests.support.engines import EmbeddedPlace
from tests.support.tracing import failing
from tests.support.waiting import until
from watchword.basics.errors import Reason
from watchword.index.indices import Row

PAD = "x" * 1_500
ROWS = {row_id: {**source, "pad": PAD} for row_id, source in (old(500) | young(3_000)).items()}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=160) as disk:
        yield disk / "index.db"


@pytest.fixture
def harness(path: Path, run: Run) -> Iterator[EngineHarness]:
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield EngineHarness(run, engine, place)
    run(engine.close())


@contextmanager
def filled(disk: Path, left: int) -> Iterator[None]:
    """Leave only this many bytes free on the disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free > left:
            file.write(bytes(4096))
        try:
            yield
        finally:
            file.truncate(0)


def test_full_disk_makes_the_index_unavailable_and_loses_nothing(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", ROWS)
    with filled(path.parent, 0):
        fault = harness.refused(harness.engine.write(index, [Row(b'{"pad": "%s"}' % (b"x" * 100_000), "large")]))
        assert fault.reason is Reason.INDEX_UNAVAILABLE
        assert fault.message == "The search index's disk is full."
        assert harness.rows(index) == ROWS
    harness.write(index, {"new": row(1)})
    assert harness.rows(index) == ROWS | {"new": row(1)}
    assert problems(path) == []


def test_task_survives_a_disk_that_fails_for_a_moment(harness: EngineHarness, path: Path, tmp_path: Path) -> None:
    index = harness.index("one", {**ROWS, "it": row(1)})
    with working(path) as process:
        warm = harness.index("two", old(1))
        harness.ended(harness.run(harness.engine.start_delete(warm, UNTIL, QUICK)))
        with failing(process.pid, tmp_path / "strace.log", "pwrite64", "EIO"):
            task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
            log = tmp_path / "strace.log"
            until(lambda: log.exists() and log.read_text().count("EIO") >= 2, "it has failed twice")
        status = harness.ended(task)
    assert status.counters.deleted == 501
    assert harness.rows(index) == staying(ROWS)
    assert problems(path) == []
