"""The embedded engine's file, driver errors and memory use."""

import asyncio
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from tests.engines.engine_process import look, problems, working
from tests.engines.harness import QUICK, UNTIL, EngineHarness, Run, old, row, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import until
from watchword.basics.errors import OperatorError, Reason
from watchword.index.embedded.deletions import FREE_PAGES, RETENTION_MILLIS
from watchword.index.embedded.engine import open_engine
from watchword.index.embedded.index_file import INDEX_FILE, place
from watchword.index.indices import Row

ERRORS = sorted(
    (
        kind
        for kind in vars(apsw).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__.startswith("apsw")
    ),
    key=lambda kind: kind.__name__,
)
OPEN = """
import sys, pathlib
from watchword.index.embedded.engine import open_engine
sys.stdin.readline()
print(open_engine(pathlib.Path(sys.argv[1])).node)
"""
ASK = """
import asyncio, pathlib, sys
from watchword.index.embedded.engine import open_engine

async def main(path, index, until):
    engine = open_engine(pathlib.Path(path))
    await asyncio.gather(*(engine.count(index, int(until)) for _ in range(8)))
    print(pathlib.Path("/proc/self/status").read_text())

asyncio.run(main(*sys.argv[1:]))
"""
MEMORY_MIB = 100  # of the 300 allowed for ten million rows; it does not grow with them


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "index.db"


@pytest.fixture
def harness(path: Path, run: Run) -> Iterator[EngineHarness]:
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield EngineHarness(run, engine, place)
    run(engine.close())


def test_only_the_owner_can_read_the_file_and_its_companions(harness: EngineHarness, path: Path) -> None:
    harness.index("one", old(3))
    with working(path):
        until(lambda: path.with_name("index.db.lock").exists(), "it works")
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(files) >= {"index.db", "index.db-wal", "index.db-shm", "index.db.lock"}
    assert set(files.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_file_readable_by_others_is_rejected(path: Path) -> None:
    open_engine(path)
    path.chmod(0o644)
    with pytest.raises(OperatorError, match="chmod 600"):
        open_engine(path)


def test_file_of_a_newer_version_is_rejected_and_not_changed(path: Path) -> None:
    open_engine(path)
    with closing(apsw.Connection(str(path))) as file:
        file.execute(f"PRAGMA user_version = {INDEX_FILE.latest + 1}")
    before = path.read_bytes()
    with pytest.raises(OperatorError, match=rf"version {INDEX_FILE.latest + 1}; .* up to {INDEX_FILE.latest}"):
        open_engine(path)
    assert path.read_bytes() == before


def test_database_of_another_program_is_rejected_and_not_changed(path: Path) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as file:
        file.execute("CREATE TABLE theirs (a)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="not a Watchword search index"):
        open_engine(path)
    assert path.read_bytes() == before


def test_file_that_is_not_a_database_is_rejected_and_not_changed(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"a letter to somebody else\n" * 100)
    path.chmod(0o600)
    with pytest.raises(OperatorError, match="not a Watchword search index"):
        open_engine(path)
    assert path.read_bytes() == b"a letter to somebody else\n" * 100


def test_processes_that_create_the_file_concurrently_agree_on_the_node(path: Path) -> None:
    openers = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write(b"\n")
        opener.stdin.flush()
    nodes = {opener.communicate()[0].strip() for opener in openers}
    assert len(nodes) == 1
    assert len(nodes.pop()) == 22
    with closing(apsw.Connection(str(path))) as file:
        pragmas = [file.execute(f"PRAGMA {name}").get for name in ("user_version", "application_id", "auto_vacuum")]
    assert pragmas == [INDEX_FILE.latest, INDEX_FILE.application_id, 2]


def test_file_that_another_process_creates_meanwhile_is_not_foreign(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o600)
    with closing(apsw.Connection(str(path))) as looking:

        def create_table_meanwhile(_: apsw.Cursor, sql: str, __: object) -> bool:
            if "sqlite_master" in sql:
                with suppress(apsw.BusyError), closing(apsw.Connection(str(path))) as making:
                    making.execute(
                        f"BEGIN; CREATE TABLE meta (node); PRAGMA application_id = {INDEX_FILE.application_id}; COMMIT"
                    )
            return True

        looking.exec_trace = create_table_meanwhile
        assert INDEX_FILE.version(looking) == 0


@pytest.mark.parametrize("kind", ERRORS)
def test_every_driver_error_becomes_a_fault(kind: type[apsw.Error]) -> None:
    fault = INDEX_FILE.fault(kind("UNIQUE constraint failed: documents.id"))
    assert fault.reason in {Reason.INDEX_UNAVAILABLE, Reason.INTERNAL}
    assert "documents" not in fault.message
    assert kind.__name__ not in fault.message
    assert fault.cause is not None
    assert kind.__name__ in fault.cause


def test_file_locked_too_long_is_unavailable(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(1))
    with closing(apsw.Connection(str(path))) as holder:
        holder.execute("BEGIN IMMEDIATE")
        fault = harness.refused(harness.engine.write(index, [Row(b"{}")]))
        assert fault.reason is Reason.INDEX_UNAVAILABLE
        assert harness.run(harness.engine.count(index, UNTIL)).total == 1
        holder.execute("ROLLBACK")
    harness.write(index, young(1))
    assert len(harness.rows(index)) == 2


def test_closed_engine_reports_that_the_service_stops(harness: EngineHarness) -> None:
    harness.run(harness.engine.close())
    assert harness.refused(harness.engine.probe()).reason is Reason.STOPPING


def test_event_loop_is_not_blocked_by_a_waiting_write(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one")

    async def both() -> int:
        writing = asyncio.ensure_future(harness.engine.write(index, [Row(b"{}")]))
        turns = 0
        while turns < 20:
            await asyncio.sleep(0.005)
            turns += 1
        assert not writing.done()
        holder.execute("ROLLBACK")
        await writing
        return turns

    with closing(apsw.Connection(str(path))) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert harness.run(both()) == 20
    assert len(harness.rows(index)) == 1


@pytest.mark.parametrize("row_id", ["", "x" * 513, "\ud800", "é" * 257])
def test_invalid_row_id_is_rejected_and_no_row_is_written(harness: EngineHarness, row_id: str) -> None:
    index = harness.index("one")
    rows = [Row(b"{}", "good"), Row(b"{}", row_id)]
    assert harness.refused(harness.engine.write(index, rows)).reason is Reason.INDEX_REFUSED
    assert harness.rows(index) == {}


@pytest.mark.parametrize("at", [2**63, 2**64, -(2**63), 10**30, 1e308])
def test_time_beyond_64_bits_is_compared(harness: EngineHarness, at: float) -> None:
    index = harness.index("one", {"far": row(1, at)})
    assert harness.run(harness.engine.count(index, UNTIL)).old == int(at < 0)
    assert harness.rows(index) == {"far": row(1, at)}


def test_tasks_that_ended_a_week_ago_are_forgotten(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(2))
    with working(path):
        tasks = [harness.run(harness.engine.start_delete(index, UNTIL, QUICK)) for _ in range(2)]
        for task in tasks:
            harness.ended(task)
    waiting = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    look(path, "UPDATE tasks SET started_at = started_at - ?", RETENTION_MILLIS + 60_000)
    look(path, "UPDATE tasks SET ended_at = ended_at - ? WHERE number = ?", RETENTION_MILLIS + 1, tasks[0].number)
    with working(path):
        harness.ended(waiting)
        until(lambda: harness.run(harness.engine.task(tasks[0])) is None, "it is forgotten")
    assert harness.status(tasks[1]).completed


def test_pages_of_deleted_rows_are_given_back(harness: EngineHarness, path: Path) -> None:
    rows = {f"row-{n}": {"pad": "x" * 2_000, "timestampMillis": UNTIL - n} for n in range(10_000)}
    index = harness.index("one", rows | young(20))

    def pages() -> int:
        count: int = look(path, "PRAGMA page_count")[0][0]
        return count

    assert pages() > 5 * FREE_PAGES
    task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    with working(path):
        harness.ended(task)
        until(lambda: pages() <= FREE_PAGES + 100, "the pages are harness back")
        until(lambda: path.stat().st_size <= 4096 * (FREE_PAGES + 100), "the file is shorter")
    assert harness.rows(index) == young(20)
    assert problems(path) == []


def test_file_of_the_first_version_is_migrated_with_its_rows_and_tasks(path: Path, run: Run) -> None:
    path.parent.mkdir()
    path.touch(0o600)
    with closing(apsw.Connection(str(path))) as file:
        file.execute(INDEX_FILE.migrations[0])
        file.execute(f"PRAGMA user_version = 1; PRAGMA application_id = {INDEX_FILE.application_id}")
        file.execute("INSERT INTO meta VALUES (1, 'node')")
        file.execute("INSERT INTO indices (name, last) VALUES ('one', 1), ('two', 1)")
        for index in (1, 2):
            file.execute("INSERT INTO documents VALUES (?, ?, 'it', 1, 5, '{}')", (place(index, 1), index))
        columns = "tag, index_number, until, mark, batch, rate, started_at"
        file.execute(f"INSERT INTO tasks ({columns}) VALUES ('deletion', 1, 5, 1, 100, 1e9, 5)")
    engine = open_engine(path)
    assert [run(engine.resolve(name)) is not None for name in ("one", "two", "three")] == [True, True, False]
    assert run(engine.count("two", 5)).old == 1
    run(engine.write("two", [Row(b'{"timestampMillis": 5}', "new")]))
    with working(path):
        task = run(engine.start_delete("two", 5, QUICK))
        until(lambda: (status := run(engine.task(task))) is not None and status.completed, "the rows are deleted")
        until(lambda: run(engine.count("one", 5)).total == 0, "the older task is done")
    assert run(engine.count("two", 5)).total == 0
    run(engine.close())
    assert problems(path) == []
    assert look(path, "SELECT count(*) FROM documents") == [(0,)]


def fill(harness: EngineHarness, path: Path, rows: int, width: int) -> str:
    """Write directly to the file. Every other row is old; ids are unsorted."""
    index = harness.index("large")
    look(
        path,
        """WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
           INSERT INTO documents SELECT :first + n, :index, printf('%08x', n * 2654435761 % 4294967296), 1,
               :until + iif(n % 2, n, -n), CAST(printf('{"value": %d}', n) || :pad AS BLOB) FROM numbers""",
        {"rows": rows, "first": place(1, 0), "index": 1, "until": UNTIL, "pad": " " * width},
    )
    look(path, "UPDATE indices SET last = ?", rows)
    return index


def peak_mib(status: str) -> float:
    """Peak memory of a process, from the kernel."""
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def little_memory(harness: EngineHarness, path: Path, rows: int, enough: int, width: int) -> None:
    """Of the engine process while it deletes `enough` rows, and of a process that counts."""
    index = fill(harness, path, rows, width)
    with working(path) as process:
        task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
        harness.until(task, lambda s: s.completed or s.counters.done >= enough, "enough is done", 1_800)
        harness.run(harness.engine.cancel(task))
        assert harness.over(task).counters.done >= min(enough, rows // 2)
        assert peak_mib(Path(f"/proc/{process.pid}/status").read_text()) < MEMORY_MIB
    told = subprocess.run(
        [sys.executable, "-c", ASK, str(path), index, str(UNTIL + rows)], capture_output=True, text=True, check=True
    ).stdout
    assert peak_mib(told) < MEMORY_MIB


def test_a_hundred_thousand_rows_need_little_memory(harness: EngineHarness, path: Path) -> None:
    little_memory(harness, path, 100_000, 15_000, width=1_000)


@pytest.mark.soak
def test_three_million_rows_need_little_memory(harness: EngineHarness, path: Path) -> None:
    little_memory(harness, path, 3_000_000, 3_000_000, width=200)
