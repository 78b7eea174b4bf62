"""The embedded engine's process: one works, the others wait; it exits with its parent and is restarted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.engines.engine_process import COMMAND, look, problems, start, working
from tests.engines.harness import SLOW, UNTIL, EngineHarness, Run, old, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import SECONDS, until, until_gone
from watchword.index.embedded.process import EngineProcess
from watchword.index.engine import Pace
from watchword.index.indices import Row

WRITER = """
import asyncio, sys, pathlib
from watchword.index.indices import Row
from watchword.index.embedded.engine import open_engine

async def main(path, index, name, count):
    engine = open_engine(pathlib.Path(path))
    for number in range(int(count)):
        at = 1767225600000 + (1 if number % 2 else -1)
        source = b'{"value": %d, "timestampMillis": %d}' % (number, at)
        await engine.write(index, [Row(source, f"{name}-{number}"), Row(source, "shared")])
        print(number, flush=True)
    await engine.close()

asyncio.run(main(*sys.argv[1:]))
"""
PARENT = """
import os, sys, pathlib
from watchword.index.embedded.process import EngineProcess
with EngineProcess(pathlib.Path(sys.argv[1])) as engine_process:
    print(engine_process.pid, flush=True)
    os.read(0, 1)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def harness(path: Path, run: Run) -> Iterator[EngineHarness]:
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield EngineHarness(run, engine, place)
    run(engine.close())


@contextmanager
def parent_of_engine_process(path: Path) -> Iterator[tuple[psutil.Process, int]]:
    """A process that runs the engine's and stops it at the end: not this one, which has the file open itself."""
    command = [sys.executable, "-c", PARENT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        yield psutil.Process(parent.pid), int(parent.stdout.readline())


def holds_lock(path: Path, pid: int) -> bool:
    """Whether this process has the lock beside the file."""
    lock = path.with_name(path.name + ".lock")
    if not lock.exists():
        return False
    inode = f":{lock.stat().st_ino} "
    locks = Path("/proc/locks").read_text().splitlines()
    return any(inode in f"{line} " and f" {pid} " in line and "->" not in line for line in locks)


def waits_for_lock(pid: int) -> bool:
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_second_engine_process_takes_over_when_the_first_dies(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(2_000))
    with working(path) as first:
        until(lambda: holds_lock(path, first.pid), "the first has the lock")
        with working(path) as second:
            until(lambda: waits_for_lock(second.pid), "the second waits for it")
            task = harness.run(harness.engine.start_delete(index, UNTIL, SLOW))
            harness.until(task, lambda s: s.counters.deleted > 0, "the first works")
            assert not holds_lock(path, second.pid)
            first.kill()
            before = harness.status(task).counters.deleted
            harness.until(task, lambda s: s.counters.deleted > before + SLOW.batch, "the second works")
            assert holds_lock(path, second.pid)
            harness.run(harness.engine.cancel(task))
            status = harness.over(task)
    assert len(harness.rows(index)) == 2_000 - status.counters.deleted


def test_engine_process_has_the_lowest_priority(path: Path) -> None:
    with working(path) as process:
        until(lambda: psutil.Process(process.pid).nice() == 19, "it is nice")
        until(lambda: psutil.Process(process.pid).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE, "its disk is idle's")


def test_engine_process_exits_with_a_killed_parent(path: Path) -> None:
    with parent_of_engine_process(path) as (parent, pid):
        until(lambda: holds_lock(path, pid), "it works")
        child = psutil.Process(pid)
        parent.kill()
    until_gone([child])


def test_engine_process_exits_when_its_parent_is_gone(path: Path) -> None:
    process = start(path, os.getppid())  # not the one that starts it
    assert process.wait(SECONDS) == 1


def test_engine_process_is_restarted_and_stopped_at_the_end(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(300))
    task = harness.run(harness.engine.start_delete(index, UNTIL, Pace("t", 5, 200.0)))
    with parent_of_engine_process(path) as (parent, first):
        pid = first
        for deleted in (20, 60, 100):
            harness.until(task, lambda s, deleted=deleted: s.counters.deleted > deleted, "it works")  # type: ignore[misc]
            os.kill(pid, signal.SIGKILL)
            until(
                lambda killed=pid: {child.pid for child in parent.children()} - {killed} != set(),  # type: ignore[misc]
                "there is another",
            )
            (pid,) = {child.pid for child in parent.children()} - {pid}
        harness.ended(task)
        last = psutil.Process(pid)
    until_gone([last])
    assert harness.rows(index) == {}


def test_engine_process_stopped_while_starting_leaves_nothing_behind(path: Path) -> None:
    before = set(psutil.Process().children())
    for _ in range(5):
        with EngineProcess(path) as engine_process:
            assert engine_process.pid not in {None, *(child.pid for child in before)}
    until_gone(set(psutil.Process().children()) - before)


def test_ctrl_c_does_not_reach_the_engine_process(path: Path) -> None:
    with EngineProcess(path) as engine_process:
        until(lambda: engine_process.pid is not None, "it was started")
        pid = engine_process.pid
        assert pid is not None
        os.kill(pid, signal.SIGINT)
        until(lambda: holds_lock(path, pid) or engine_process.pid != pid, "it works, or is gone")
        assert engine_process.pid == pid


def test_no_write_is_lost_while_a_task_runs(harness: EngineHarness, path: Path) -> None:
    rows = old(3_000) | young(500)
    index = harness.index("one", rows)
    with working(path):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), index, f"writer{n}", "60"], stdout=subprocess.PIPE
            )
            for n in range(3)
        ]
        task = harness.run(harness.engine.start_delete(index, UNTIL - 1_000, Pace("t", 50)))
        said = [writer.communicate()[0].split() for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert [len(numbers) for numbers in said] == [60, 60, 60]
        harness.ended(task)
    written = {f"writer{n}-{number}" for n in range(3) for number in range(60)} | {"shared"}
    kept = {row_id for row_id, source in rows.items() if source["timestampMillis"] > UNTIL - 1_000}
    found = harness.rows(index)
    assert set(found) == written | kept
    assert look(path, "SELECT version FROM documents WHERE id = 'shared' AND index_number = 1") == [(180,)]
    assert problems(path) == []


def test_engine_process_names_a_foreign_file(path: Path) -> None:
    path.write_bytes(b"something else, of more than a few bytes, that nobody should overwrite" * 20)
    path.chmod(0o600)
    done = subprocess.run([*COMMAND, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not a Watchword search index" in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_nested_too_deeply_for_sqlite_stay_with_keep_last(harness: EngineHarness, path: Path) -> None:
    rows = {f"row-{n}": {"urn": "urn:a", "timestampMillis": UNTIL - n} for n in range(5)}
    index = harness.index("one", rows)
    source = b'{"urn": "urn:a", "timestampMillis": 1, "deep": %s}' % (b"[" * 1_010 + b"]" * 1_010)
    harness.run(harness.engine.write(index, [Row(source, "deep-0"), Row(source, "deep-1")]))
    assert harness.run(harness.engine.count(index, UNTIL, 1)).old == 4
    with working(path):
        assert harness.deleted(index, UNTIL, 1) == 4
    assert look(path, "SELECT id FROM documents ORDER BY id") == [("deep-0",), ("deep-1",), ("row-0",)]
