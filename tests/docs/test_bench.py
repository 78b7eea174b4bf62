"""The benches run, on real load: each row for a second, on two small stores, and beside the truncation of a small
index.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from bench.documents import NAME, fill_index, middle
from tests.support.pages import ROOT
from tests.support.system import missing, need_program
from watchword.domain.indices import Row
from watchword.engines.embedded import open_engine

ROWS = {"verify", "own list of 20", "list of 100", "create", "revoke"}


def bench(*flags: str, module: str = "bench") -> subprocess.CompletedProcess[str]:
    need_program("wrk", "wrk")
    need_program("taskset", "util-linux")
    if (os.cpu_count() or 1) < 2:
        missing("needs two cores: one for the server, one for the load")
    command = [sys.executable, "-m", module, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


def test_the_bench_measures_every_row_at_every_size_and_says_whether_its_laws_hold(tmp_path: Path) -> None:
    flags = ["--sizes", "1000", "2000", "--repeats", "1", "--seconds", "1"]
    ran = bench(*flags, "--folder", str(ROOT), "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    (file,) = tmp_path.glob("*.json")
    kept = json.loads(file.read_text())
    sizes = defaultdict(set)
    for run in kept["runs"]:
        assert run["measured"][0]["per_second"] > 0
        sizes[run["case"]].add(run["tokens"])
    assert sizes == {row: {None, 1_000, 2_000} for row in ROWS}
    assert all(row in ran.stdout for row in ROWS)
    # Verification at each size, and what each row costs on the larger store.
    assert len(kept["laws"]) == 2 + len(ROWS)
    assert all(law["sentence"] in ran.stdout for law in kept["laws"])


def test_the_bench_does_not_measure_commits_in_memory(tmp_path: Path) -> None:
    ran = bench("--folder", "/dev/shm", "--out", str(tmp_path))
    assert ran.returncode != 0
    assert "--folder must be on a real disk" in ran.stderr


def test_the_bench_of_the_index_truncates_it_both_ways_under_load_and_says_whether_its_laws_hold(
    tmp_path: Path,
) -> None:
    flags = ["--documents", "40000", "--rate", "4000", "--rounds", "1", "--seconds", "1"]
    ran = bench(*flags, "--folder", str(ROOT), "--out", str(tmp_path), module="bench.index")
    assert ran.returncode == 0, ran.stderr
    (file,) = tmp_path.glob("index-*.json")
    kept = json.loads(file.read_text())
    assert kept["documents"] == 40_000
    ran_so = [(one["way"], one["rate"]) for one in kept["truncations"]]
    assert ran_so == [("deletion", 4_000), ("deletion", 0), ("copy", 4_000), ("copy", 0)]
    for one in kept["truncations"]:
        assert one["rows_alone"] > 0
        assert one["resident"]["together"] > one["resident"]["engine"] > 0
    for one in kept["truncations"][::2]:
        assert [len(turns) for turns in one["turns"]["verify"].values()] == [1, 1, 1]
        assert one["seconds"] > 0
        assert one["mib_at_most"] >= one["mib_after"] > 0
    # Each way where the engine works on the server's core and on any, and its memory. More, where giving space back
    # took long enough to be measured.
    assert len(kept["laws"]) >= 2 * 3
    assert all(law["sentence"] in ran.stdout for law in kept["laws"])


def test_the_bench_of_uses_records_in_every_other_turn_and_says_whether_its_law_holds(tmp_path: Path) -> None:
    flags = ["--tokens", "2000", "--callers", "100", "--rounds", "2", "--seconds", "1"]
    ran = bench(*flags, "--folder", str(ROOT), "--out", str(tmp_path), module="bench.uses")
    assert ran.returncode == 0, ran.stderr
    (file,) = tmp_path.glob("uses-*.json")
    kept = json.loads(file.read_text())
    assert {which: len(turns) for which, turns in kept["turns"].items()} == {"recorded": 2, "unrecorded": 2}
    assert all(turn["per_second"] > 0 for turns in kept["turns"].values() for turn in turns)
    assert kept["noted"]["tokens"] == 100
    assert [law["sentence"] in ran.stdout for law in kept["laws"]] == [True]


def test_an_index_filled_for_the_bench_is_what_writing_its_rows_would_have_made(tmp_path: Path) -> None:
    filled, written = tmp_path / "filled.db", tmp_path / "written.db"
    fill_index(filled, 2_000, now=1_800_000_000_000)
    rows = [Row(source, one) for one, source in look(filled, "SELECT id, source FROM documents ORDER BY place")]
    count, moment = middle(filled)

    async def write() -> None:
        engine = open_engine(written)
        await engine.make(NAME)
        await engine.write(NAME, rows)
        found = await engine.count(NAME, moment)
        assert (found.total, found.old) == (count, 1_000)
        await engine.close()

    asyncio.run(write())
    for query in (
        "SELECT * FROM documents ORDER BY place",
        "SELECT number, name, blocked, rows, bytes, last FROM indices",
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name",
        "PRAGMA user_version",
        "PRAGMA application_id",
        "PRAGMA auto_vacuum",
        "PRAGMA journal_mode",
        "PRAGMA integrity_check",
    ):
        assert look(filled, query) == look(written, query)


def look(path: Path, query: str) -> list[Any]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as file:
        return file.execute(query).fetchall()
