"""The embedded engine's process: one works, the others wait; it dies with its parent; it is restarted."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.engines.engine_process import COMMAND, look, problems, start, working
from tests.engines.given import QUICK, SLOW, UNTIL, Given, Run, old, row, staying, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import SECONDS, is_alive, until, until_gone
from watchword.domain.engine import Pace
from watchword.engines.embedded.helper import Helper

WRITER = """
import asyncio, sys, pathlib
from watchword.domain.indices import Row
from watchword.engines.embedded import open_engine

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
import sys, pathlib, time
from watchword.engines.embedded.helper import Helper
with Helper(pathlib.Path(sys.argv[1])) as helper:
    while helper.pid is None:
        time.sleep(0.01)
    print(helper.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def given(path: Path, run: Run) -> Iterator[Given]:
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield Given(run, engine, place)
    run(engine.close())


def holds_lock(path: Path, pid: int) -> bool:
    """Whether the kernel says that this process has the lock beside the file."""
    lock = path.with_name(path.name + ".lock")
    if not lock.exists():
        return False
    inode = f":{lock.stat().st_ino} "
    locks = Path("/proc/locks").read_text().splitlines()
    return any(inode in f"{line} " and f" {pid} " in line and "->" not in line for line in locks)


def waits_for_lock(pid: int) -> bool:
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_of_two_processes_one_works_and_the_other_takes_over(given: Given, path: Path) -> None:
    index = given.index("one", old(2_000))
    with working(path) as first:
        until(lambda: holds_lock(path, first.pid), "the first has the lock")
        with working(path) as second:
            until(lambda: waits_for_lock(second.pid), "the second waits for it")
            task = given.run(given.engine.start_delete(index, UNTIL, SLOW))
            given.until(task, lambda s: s.counters.deleted > 0, "the first works")
            assert not holds_lock(path, second.pid)
            first.kill()
            before = given.status(task).counters.deleted
            given.until(task, lambda s: s.counters.deleted > before + SLOW.batch, "the second works")
            assert holds_lock(path, second.pid)
            given.run(given.engine.cancel(task))
            status = given.over(task)
    assert len(given.rows(index)) == 2_000 - status.counters.deleted


def test_it_is_of_the_lowest_priority(path: Path) -> None:
    with working(path) as process:
        until(lambda: psutil.Process(process.pid).nice() == 19, "it is nice")
        until(lambda: psutil.Process(process.pid).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE, "its disk is idle's")


def test_it_dies_with_a_parent_that_is_killed(path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pid = int(parent.stdout.readline())
        until(lambda: holds_lock(path, pid), "it works")
        child = psutil.Process(pid)
        parent.kill()
        parent.wait()
    until_gone([child])


def test_it_does_not_stay_where_its_parent_is_gone_already(path: Path) -> None:
    process = start(path, os.getppid())  # not the one that starts it
    assert process.wait(SECONDS) == 1


def test_the_helper_starts_it_again_and_stops_it_in_the_end(given: Given, path: Path) -> None:
    index = given.index("one", old(300))
    task = given.run(given.engine.start_delete(index, UNTIL, Pace("t", 5, 200.0)))
    with Helper(path) as helper:
        for deleted in (20, 60, 100):
            given.until(task, lambda s, deleted=deleted: s.counters.deleted > deleted, "it works")  # type: ignore[misc]
            pid = helper.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: helper.pid not in (None, pid), "there is another")  # type: ignore[misc]
        given.ended(task)
        last = psutil.Process(helper.pid)
    until_gone([last])
    assert given.rows(index) == {}


def test_a_helper_that_is_left_at_once_leaves_nothing_behind(path: Path) -> None:
    for _ in range(5):
        with Helper(path):
            pass
    until_gone(one for one in psutil.Process().children() if is_alive(one) and str(path) in one.cmdline())


def test_a_key_that_interrupts_the_server_does_not_reach_it_even_while_it_starts(path: Path) -> None:
    with Helper(path) as helper:
        until(lambda: helper.pid is not None, "it was started")
        pid = helper.pid
        assert pid is not None
        os.kill(pid, signal.SIGINT)
        until(lambda: holds_lock(path, pid) or helper.pid != pid, "it works, or is gone")
        assert helper.pid == pid


def test_no_write_is_lost_while_a_task_runs(given: Given, path: Path) -> None:
    rows = old(3_000) | young(500)
    index = given.index("one", rows)
    target = given.copy_of(index)
    marks = given.run(given.engine.marks(index))
    with working(path):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), index, f"writer{n}", "60"], stdout=subprocess.PIPE
            )
            for n in range(3)
        ]
        tasks = [
            given.run(given.engine.start_copy(index, target, UNTIL, Pace("t", 50))),
            given.run(given.engine.start_delete(index, UNTIL - 1_000, Pace("t", 50))),
        ]
        said = [writer.communicate()[0].split() for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert [len(numbers) for numbers in said] == [60, 60, 60]
        for task in tasks:
            given.ended(task)
        given.caught_up(index, target, marks)
        given.run(given.engine.reconcile(index, target, UNTIL))
    written = {f"writer{n}-{number}" for n in range(3) for number in range(60)} | {"shared"}
    kept = {row_id for row_id, source in rows.items() if source["timestampMillis"] > UNTIL - 1_000}
    found = given.rows(index)
    assert set(found) == written | kept
    assert given.rows(target) == staying(found)
    assert look(path, "SELECT version FROM documents WHERE id = 'shared' AND index_number = 1") == [(180,)]
    assert problems(path) == []


def test_a_task_on_an_index_that_is_dropped_fails_and_says_so(given: Given, path: Path) -> None:
    index = given.index("one", old(2_000))
    with working(path):
        task = given.run(given.engine.start_delete(index, UNTIL, SLOW))
        given.until(task, lambda s: s.counters.deleted > 0, "it has begun")
        given.run(given.engine.drop(index))
        given.index("one", old(3))
        status = given.over(task)
        assert status.error is not None
        assert "dropped" in status.error
    assert given.rows(index) == old(3)


def test_a_task_on_an_index_that_is_blocked_fails_and_says_so(given: Given, path: Path) -> None:
    index = given.index("one", old(2_000))
    with working(path):
        task = given.run(given.engine.start_delete(index, UNTIL, SLOW))
        given.until(task, lambda s: s.counters.deleted > 0, "it has begun")
        given.run(given.engine.block(index))
        status = given.over(task)
    assert status.error is not None
    assert "refuses writes" in status.error
    assert len(given.rows(index)) == 2_000 - status.counters.deleted


def test_a_swap_ends_what_still_writes_into_the_copy(given: Given, path: Path) -> None:
    index = given.index("one", young(2_000))
    target = given.copy_of(index)
    with working(path):
        task = given.run(given.engine.start_copy(index, target, UNTIL, SLOW))
        given.until(task, lambda s: s.counters.created > 0, "it has begun")
        given.run(given.engine.swap(index, index, target))
        status = given.status(task)
        assert status.completed
        assert status.error is not None
        assert "cancelled" in status.error
        given.write(target, {"new": row(1)})
        given.ended(given.run(given.engine.start_delete(target, UNTIL, QUICK)))
    assert len(given.rows(index)) == status.counters.created


def test_whoever_stops_waiting_for_a_comparison_ends_it(given: Given, path: Path) -> None:
    index = given.index("one", young(5))
    target = given.copy_of(index)

    unfinished = "SELECT cancel_asked FROM tasks WHERE ended_at IS NULL"

    async def impatient() -> None:
        waiting = asyncio.ensure_future(given.engine.reconcile(index, target, UNTIL))
        await asyncio.to_thread(until, lambda: look(path, unfinished) == [(0,)], "it was asked for")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    given.run(impatient())
    until(lambda: look(path, unfinished) == [(1,)], "it is to be cancelled")
    with working(path):
        until(lambda: look(path, unfinished) == [], "it is over")


def test_it_says_how_it_is_called_when_the_file_is_not_for_it(path: Path) -> None:
    path.write_bytes(b"something else, of more than a few bytes, that nobody should overwrite" * 20)
    path.chmod(0o600)
    done = subprocess.run([*COMMAND, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is no search index of Watchword" in done.stderr
    assert "Traceback" not in done.stderr
