"""The benchmarks run under real load and write their results, in the soak; the published page matches its results."""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import apsw
import pytest

from bench import publish
from bench.contenders import BARE, WATCHWORD
from bench.documents import NAME, fill_index, middle
from bench.expensive.shape import NORMALS
from bench.load import Measured
from bench.report import Report, Results, finish
from tests.support.pages import ROOT
from tests.support.postgres import DEBIAN, programs
from tests.support.system import missing, need_program
from watchword.index.embedded.engine import open_engine
from watchword.index.indices import Row

SVG = "{http://www.w3.org/2000/svg}"
SHORT = ("--repeats", "1", "--seconds", "1", "--warm", "0")
TURNS = ("--rounds", "1", "--seconds", "1")
ALL = {
    "lists": [*SHORT, "--sizes", "2000"],
    "writes": [*SHORT, "--sizes", "2000"],
    "sizes": [*SHORT, "--sizes", "1000", "2000"],
    "workers": [*SHORT, "--sizes", "2000"],
    "postgres": [*SHORT, "--sizes", "1000", "2000", "--refusals", "5"],
    "uses": ["--rounds", "2", "--seconds", "1", "--tokens", "2000", "--callers", "100"],
    "index": [*TURNS, "--documents", "40000", "--rate", "4000"],
    "expiry": [*TURNS, "--tokens", "9000"],
    "bulk_revocation": [],
}


def bench(*words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    need_program("wrk", "wrk")
    need_program("taskset", "util-linux")
    if (os.cpu_count() or 1) < 2:
        missing("needs two cores: one for the server, one for the load")
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.soak
def test_bench_measures_beside_bare_answers_checks_targets_and_draws_a_chart(tmp_path: Path) -> None:
    done = bench("verify", *SHORT, "--sizes", "1000", "--folder", str(ROOT), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "verify.json").read_text())
    rows = [(row["case"], row["contender"], row["tokens"]) for row in kept["rows"]]
    assert rows == [("verify", "bare", None), ("verify", "bare-rsgi", None), ("verify", "watchword", 1_000)]
    assert all(one["per_second"] > 0 for row in kept["rows"] for one in row["measured"])
    (law,) = [law for law in kept["laws"] if law["least"]]
    assert law["holds"] is (law["value"] >= law["least"])
    assert f"{'holds' if law['holds'] else 'FAILS'}  {law['sentence']}" in done.stdout
    words = {one.text for one in ET.parse(tmp_path / "verify.svg").iter(f"{SVG}text")}
    assert {"bare", "bare-rsgi", "watchword, 1,000 tokens", kept["title"]} <= words
    assert {law["name"] for law in kept["laws"]} <= words


@pytest.mark.soak
def test_compare_distinguishes_a_faster_run_from_an_equal_one(tmp_path: Path) -> None:
    names = [kept_run(tmp_path / folder, times) for folder, times in (("one", 1), ("again", 1), ("faster", 2))]
    one, again, faster = names
    for words, ratio, word in (
        ((one, again), "1.00", "same within the noise"),
        ((one, faster), "2.00", "faster"),
        ((faster, one), "0.50", "slower"),
    ):
        said = bench("compare", *words).stdout
        (line,) = [line for line in said.splitlines() if line.startswith("watchword, 1,000 tokens: verify")]
        assert line.split()[4] == ratio, said
        assert line.endswith(f"{word}, by the processor {word}")


def kept_run(out: Path, times: int) -> str:
    """Write a result in which the bare answer has its usual rate and Watchword `times` its usual rate."""
    bare = [Measured(rate, 1e6 / rate, 1, 2) for rate in (50_000, 51_000, 52_000)]
    ours = [Measured(rate * times, 1e6 / rate / times, 1, 2) for rate in (20_000, 20_100, 20_900)]
    results = Results({("verify", BARE, None): bare, ("verify", WATCHWORD, 1_000): ours})
    finish(Report("verify", "Verification", [], results), argparse.Namespace(out=out, strict=False))
    return str(out / "verify.json")


def test_performance_page_matches_the_published_results() -> None:
    runs = publish.published()
    page = publish.PAGE.read_text()
    assert set(re.findall(r"\(charts/(\w+)\.svg\)", page)) <= {run["name"] for run in runs}
    assert publish.with_laws(page, runs) == page
    assert publish.NUMBERS.read_text() == publish.numbers(runs)


@pytest.mark.soak
def test_bench_shapes_compares_an_expensive_request_with_a_normal_one(tmp_path: Path) -> None:
    flags = ["--tokens", "1000", "--seconds", "0.1", "--only", "31 kB of hops in 90 lines"]
    ran = bench("shapes", *flags, "--folder", str(ROOT), "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    *normal, hops = json.loads((tmp_path / "shapes.json").read_text())["shapes"]
    assert [one["times"] for one in normal] == [1.0] * len(NORMALS)
    assert (hops["name"], hops["normal"], hops["answer"]) == ("31 kB of hops in 90 lines", "auth", "204")
    (verified,) = (one for one in normal if one["normal"] == "auth")
    assert hops["times"] == hops["cpu_ms"] / verified["cpu_ms"]
    assert "31 kB of hops in 90 lines," in (tmp_path / "shapes.csv").read_text()


@pytest.mark.soak
def test_bench_stages_shows_where_the_time_of_each_request_goes() -> None:
    done = bench("stages", "--seconds", "1", "--folder", str(ROOT), seconds=300)
    assert done.returncode == 0, done.stderr
    for row in ("verify", "own list of 20", "list of 100", "create", "revoke"):
        told = done.stdout.partition(f"\n{row}, ")[2].partition("\n\n")[0]
        parts = {name.strip(): float(us) for name, us in re.findall(r"^(.{34})\s*([\d.]+)$", told, re.MULTILINE)}
        assert {"store", "bearer and rights"} <= parts.keys()
        assert ("writer thread" in parts) == (row in {"create", "revoke"})
        whole = parts.pop("all")
        assert 0.8 * whole < sum(parts.values()) < 1.2 * whole


@pytest.mark.soak
def test_bench_rejects_a_folder_in_memory(tmp_path: Path) -> None:
    done = bench("verify", "--folder", "/dev/shm", "--out", str(tmp_path))
    assert done.returncode != 0
    assert "--folder must be on a real disk" in done.stderr


@pytest.mark.soak
def test_unknown_bench_is_rejected_with_the_known_names() -> None:
    done = bench("verfy")
    assert done.returncode == 2
    assert "there is no bench verfy; there are verify, lists, writes" in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_every_bench_runs_and_writes_results_and_chart(name: str, tmp_path: Path) -> None:
    if name in {"postgres", "bulk_revocation"}:
        programs(DEBIAN)  # skips if it cannot be installed
    done = bench(name, *ALL[name], "--folder", str(ROOT), "--out", str(tmp_path), seconds=600)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / f"{name}.json").read_text())
    assert kept["laws"]
    assert all(law["sentence"] in done.stdout for law in kept["laws"])
    assert ET.parse(tmp_path / f"{name}.svg").getroot().get("aria-label") == kept["title"]
    for look in LOOKS.get(name, []):
        look(kept)


def _look_at_uses(kept: Any) -> None:
    assert {which: len(turns) for which, turns in kept["turns"].items()} == {"recorded": 2, "unrecorded": 2}
    assert kept["noted"]["tokens"] == 100


def _look_at_index(kept: Any) -> None:
    assert kept["documents"] == 40_000
    assert [one["rate"] for one in kept["truncations"]] == [4_000, 0]
    for one in kept["truncations"]:
        assert one["rows_alone"] > 0
        assert one["resident"]["together"] > one["resident"]["engine"] > 0
    for one in kept["truncations"][::2]:
        assert [len(turns) for turns in one["turns"]["verify"].values()] == [1, 1, 1]
        assert one["seconds"] > 0
        assert one["mib_at_most"] >= one["mib_after"] > 0


def _look_at_expiry(kept: Any) -> None:
    assert {which: len(turns) for which, turns in kept["turns"].items()} == {"notices": 1, "none": 1}
    assert 0 < kept["notices"] < 9_000


LOOKS = {"uses": [_look_at_uses], "index": [_look_at_index], "expiry": [_look_at_expiry]}


def test_index_filled_for_the_bench_equals_a_written_one(tmp_path: Path) -> None:
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
        "SELECT number, name, rows, bytes, last FROM indices",
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
