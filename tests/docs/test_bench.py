"""The bench runs: measured on one contender for a second each, on real load."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.system import missing, need_program


def test_the_bench_prints_a_table_and_keeps_its_numbers(tmp_path: Path) -> None:
    need_program("wrk", "wrk")
    need_program("taskset", "util-linux")
    if (os.cpu_count() or 1) < 2:
        missing("needs two cores: one for the server, one for the load")
    flags = ["--only", "watchword-granian", "--repeats", "1", "--seconds", "1", "--out", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *flags], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (kept,) = tmp_path.glob("*.json")
    runs = {run["case"]: run["measured"] for run in json.loads(kept.read_text())["runs"]}
    assert set(runs) == {"verify", "own list of 20"}
    assert all(measured[0]["per_second"] > 0 for measured in runs.values())
    assert all(case in ran.stdout for case in runs)
