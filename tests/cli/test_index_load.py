"""`watchword index load`: each row is loaded once; an invalid line stops the load."""

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.ports import free_port
from tests.support.series import DAY, lines, now
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS

INTO = ("dataset.operation",)
INDEX = "dataset_operationaspect_v1"
MIB = 1024 * 1024


@pytest.fixture
def folder(migrated: Path, tmp_path: Path) -> Path:
    """A data folder with a migrated store."""
    return shutil.copytree(migrated, tmp_path / "data")


def load(folder: Path, *words: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    return watchword("index", "load", *words, "--data-dir", str(folder), **how)


def kept(folder: Path, index: str = INDEX) -> dict[str, Any]:
    """Return the rows of an index by id, from the file of the embedded engine."""
    if not (folder / "index.db").exists():
        return {}
    query = "SELECT id, source FROM documents JOIN indices ON number = index_number WHERE name = ?"
    with closing(sqlite3.connect(f"file:{folder / 'index.db'}?mode=ro", uri=True)) as connection:
        return {row_id: json.loads(source) for row_id, source in connection.execute(query, (index,))}


def test_each_line_becomes_a_row_and_the_same_file_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text('{"timestampMillis": 1, "n": 1}\n\n  {"timestampMillis": 2, "n": 1e3}\r\n{"timestampMillis": 3}')
    first = load(folder, *INTO, str(file))
    before = kept(folder)
    again = load(folder, *INTO, str(file))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(f"Loaded 3 rows into {INDEX}, which now has 3.\n")
    assert "watchword index sizes" in first.stdout
    assert again.stdout == first.stdout
    rows = [{"timestampMillis": 1, "n": 1}, {"timestampMillis": 2, "n": 1000.0}, {"timestampMillis": 3}]
    assert sorted(before.values(), key=lambda row: row["timestampMillis"]) == rows
    assert kept(folder) == before


def test_member_id_is_the_rows_id_and_is_not_stored(folder: Path) -> None:
    given = '{"_id": "a", "n": 1}\n{"n": 2, "_id": "ünï"}\n{"_id": "a", "n": 3}\n'
    ran = load(folder, *INTO, "-", stdin=given)
    assert ran.stdout.startswith(f"Loaded 3 rows into {INDEX}, which now has 2.\n")
    assert kept(folder) == {"a": {"n": 3}, "ünï": {"n": 2}}


def test_rows_that_no_truncation_will_find_are_counted(folder: Path) -> None:
    given = '{"timestampMillis": "1700000000000"}\n{"timestampMillis": true}\n{"n": 1}\n{"timestampMillis": 1.5}\n'
    assert "3 of them have no numeric timestampMillis" in load(folder, *INTO, "-", stdin=given).stdout


BAD = {
    "not JSON": b'{"n": 3',
    "two": b'{"n": 3} {"n": 4}',
    "a list": b"[1]",
    "a number": b"1",
    "null": b"null",
    "NaN": b'{"n": NaN}',
    "infinite": b'{"n": 1e999}',
    "too long a number": b'{"n": ' + b"1" * 5_000 + b"}",
    "twice": b'{"n": 1, "m": {"x": 1, "x": 2}}',
    "binary": bytes(range(128, 256)),
    "NUL": b"\x00\x01\x02",
    "UTF-16": '{"n": 1}'.encode("utf-16"),
    "nested": b"[" * 100_000,
    "nested object": b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "id a number": b'{"_id": 5}',
    "id empty": b'{"_id": ""}',
    "id long": b'{"_id": "' + b"x" * 513 + b'"}',
    "id half a character": b'{"_id": "\\ud800"}',
    "too long": b'{"n": "' + b"x" * MIB + b'"}',
}


@pytest.mark.parametrize("bad", BAD)
def test_line_that_is_no_row_is_named_and_nothing_after_it_is_loaded(folder: Path, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_bytes(b'{"_id": "1"}\n{"_id": "2"}\n' + BAD[bad] + b'\n{"_id": "4"}\n')
    ran = load(folder, *INTO, str(file))
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"watchword: {file}, line 3: ")
    assert "2 rows before it were loaded" in line
    assert len(line) < 500
    assert set(kept(folder)) == {"1", "2"}


def test_line_of_just_a_mebibyte_is_a_row(folder: Path) -> None:
    frame = '{"n":""}'
    ran = load(folder, *INTO, "-", stdin='{"n":"' + "x" * (MIB - len(frame)) + '"}\r\n')
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(kept(folder)) == 1


def test_line_without_an_end_is_given_up(folder: Path) -> None:
    ran = load(folder, *INTO, "/dev/zero")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "/dev/zero, line 1: it has more than 1,048,576 bytes" in ran.stderr


@pytest.mark.parametrize("given", ["", "\n\n \r\n"])
def test_empty_file_is_said_to_be_so_and_makes_no_index(folder: Path, given: str) -> None:
    ran = load(folder, *INTO, "-", stdin=given)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "standard input has no rows" in ran.stdout
    assert kept(folder) == {}


def test_mark_that_windows_puts_before_a_text_is_passed_over(folder: Path) -> None:
    assert load(folder, *INTO, "-", stdin='\ufeff{"_id": "1"}\n').returncode == 0
    assert set(kept(folder)) == {"1"}


def test_many_rows_are_loaded_completely(folder: Path) -> None:
    ran = load(folder, *INTO, "-", stdin=lines(float(number % 90) for number in range(5_001)))
    assert ran.stdout.startswith(f"Loaded 5,001 rows into {INDEX}, which now has 5,001.\n")
    assert {row["n"] for row in kept(folder).values()} == set(range(5_001))


def test_names_are_those_of_the_settings(folder: Path) -> None:
    words = ("DataSet.Operation", "-", "--index-prefix", "prod")
    assert "into prod_dataset_operationaspect_v1," in load(folder, *words, stdin='{"n": 1}').stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--demo"),
        (("-",), "ENTITY.ASPECT"),
        (INTO, "FILE"),
        (("--demo", *INTO), "--demo"),
        ((*INTO, "-", "--rows", "5"), "--rows"),
        (("--demo", "--rows", "0"), "--rows"),
        (("dataset", "-"), "ENTITY.ASPECT must be"),
        (("a*.b", "-"), "ENTITY.ASPECT must be"),
        (("a._all", "-"), "ENTITY.ASPECT must be"),
        ((f"a.{'x' * 81}", "-"), "ENTITY.ASPECT must be"),
        ((*INTO, "-", "--index-prefix", "Bad_Prefix"), "--index-prefix"),
    ],
)
def test_usage_error_is_one_line_with_the_allowed_values(folder: Path, words: tuple[str, ...], said: str) -> None:
    ran = load(folder, *words, stdin='{"n": 1}')
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stderr
    assert said in ran.stderr
    assert kept(folder) == {}


def test_unreadable_load_file_is_reported(folder: Path, tmp_path: Path) -> None:
    for name in ("missing.ndjson", "."):
        ran = load(folder, *INTO, str(tmp_path / name))
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)
        assert str(tmp_path) in ran.stderr
    script = f'exec {sys.executable} -m watchword index load {" ".join(INTO)} - --data-dir "{folder}" <&-'
    closed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (closed.returncode, closed.stdout, len(closed.stderr.splitlines())) == (1, "", 1)
    assert "standard input, line 1: it cannot be read" in closed.stderr


def test_mistyped_folder_does_not_become_a_new_one(tmp_path: Path) -> None:
    ran = load(tmp_path / "typo", "--demo")
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)
    assert "watchword db migrate" in ran.stderr
    assert not (tmp_path / "typo").exists()


def test_index_that_is_not_there_is_reported_with_how_far_it_came(tmp_path: Path) -> None:
    words = ("--index-url", f"http://127.0.0.1:{free_port()}", "--index-timeout", "1")
    ran = load(tmp_path / "none", *INTO, "-", *words, stdin='{"n": 1}')
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)
    assert "At least 0 rows of standard input are in" in ran.stderr


def test_sample_series_reach_from_ninety_days_back_to_now(folder: Path) -> None:
    before = now()
    ran = load(folder, "--demo", "--rows", "180")
    after = now()
    assert (ran.returncode, ran.stderr) == (0, "")
    indices = [line.split()[0] for line in ran.stdout.splitlines() if line.endswith(" 180 rows")]
    assert len(indices) == 5
    for index in indices:
        rows = kept(folder, index).values()
        times = sorted(row["timestampMillis"] for row in rows)
        assert len(times) == 180
        assert before - 90 * DAY - DAY // 2 < times[0] < times[-1] <= after
        assert times[-1] > before - DAY // 2
        assert all(row["urn"].startswith("urn:li:") for row in rows)


def test_sample_series_made_again_are_the_same_but_for_what_has_come_since(folder: Path) -> None:
    load(folder, "--demo", "--rows", "90")
    before = kept(folder)
    assert load(folder, "--demo", "--rows", "90").returncode == 0
    after = kept(folder)
    assert before.items() <= after.items()
    assert len(after) - len(before) in (0, 1)  # a day may have begun


def test_load_shows_a_progress_bar_on_standard_error(folder: Path) -> None:
    with Terminal("index", "load", "--demo", "--rows", "3000", "--data-dir", str(folder)) as terminal:
        terminal.wait_for(" rows/s")
        assert terminal.finish() == 0
    assert "━" in terminal.text
    assert "3,000 rows each" in terminal.text


def test_ctrl_c_says_how_much_got_in(folder: Path) -> None:
    with Terminal("index", "load", *INTO, "-", "--data-dir", str(folder)) as terminal:
        for _ in range(1_001):  # one batch and one row more
            terminal.enter("{}\n")
        terminal.wait_for("1,000 rows,")
        assert terminal.interrupt() == 130
    assert f"1,000 rows were loaded into {INDEX}." in terminal.text


def test_large_file_is_loaded_in_little_memory(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    row = json.dumps({"timestampMillis": 1_700_000_000_000, "x": "y" * 1_000_000})
    with file.open("w") as out:
        for number in range(150):
            out.write(f'{{"_id": "{number}", {row[1:]}\n')
    assert file.stat().st_size > 150_000_000
    command = [sys.executable, "-m", "watchword", "index", "load", *INTO, str(file), "--data-dir", str(folder)]
    highest = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        # What the kernel adds up for a process that has ended counts its parent's memory too, from before the exec.
        while started.poll() is None:
            highest = max(highest, high_water_mark(started.pid))
            time.sleep(0.005)
        told = started.stdout.read()
    assert (started.returncode, b"Loaded 150 rows" in told) == (0, True)
    assert 0 < highest < 150 * 1024


def high_water_mark(pid: int) -> int:
    """Return the peak memory of the process in KiB; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
