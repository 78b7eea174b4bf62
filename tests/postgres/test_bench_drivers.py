"""The driver benchmark runs on a real server."""

import subprocess
import sys

import pytest

from tests.support.pages import ROOT
from tests.support.postgres import DEBIAN, programs
from tests.support.waiting import SECONDS


@pytest.mark.soak
def test_driver_benchmark_measures_every_driver_format_and_plan() -> None:
    programs(DEBIAN)  # skips if not installed
    flags = ["--repeats", "1", "--seconds", "0.2", "--tokens", "1000", "--parts", "drivers", "answers", "plans"]
    ran = subprocess.run(
        [sys.executable, "-m", "bench.drivers", *flags],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for way in ("one query each", "sealed batches"):
        for driver in ("asyncpg", "psycopg"):
            assert f"\n{way}, {driver} " in ran.stdout
    for form in ("rows", "arrays", "json"):
        assert f"\nasyncpg, {form} " in ran.stdout
    steady = [line for line in ran.stdout.splitlines() if "one plan, by index" in line]
    assert len(steady) == 5
    assert [line for line in steady if "Seq Scan" in line] == []
