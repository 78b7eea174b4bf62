"""The bench runs, on real load: each row for a second, on two small stores."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.system import missing, need_program

ROWS = {"verify", "own list of 20", "list of 100", "create", "revoke"}


def bench(*flags: str) -> subprocess.CompletedProcess[str]:
    need_program("wrk", "wrk")
    need_program("taskset", "util-linux")
    if (os.cpu_count() or 1) < 2:
        missing("needs two cores: one for the server, one for the load")
    command = [sys.executable, "-m", "bench", *flags]
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
