"""`watchword operation`: list, watch and cancel operations."""

import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.cli.remote.test_index import at_terminal, cancel
from tests.support.preloaded import without_settings
from tests.support.series import DAY, fill, new_aspect, now
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS, seen_in_time

Done = Callable[..., str]
START = """mutation ($input: TruncateTimeseriesAspectInput!) {
  truncateTimeseriesAspect(input: $input) { operation { id } } }"""


def start(server: Server, aspect: str) -> str:
    """Start a truncation of rows older than thirty days; return its id."""
    wanted = {"entityType": "dataset", "aspect": aspect, "endTimeMillis": now() - 30 * DAY, "dryRun": False}
    answer = server.ask(START, {"input": wanted}, actor=ADMIN)["truncateTimeseriesAspect"]
    operation: str = answer["operation"]["id"]
    return operation


def test_status_of_operations_and_index_tasks_is_shown(server: Server, done: Done) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=3, young=7)
    operation = start(server, aspect)
    assert "Post-check passed" in done("operation", "watch", operation)
    shown = done("operation", "status", operation)
    for line in (rf"Operation +{operation}", "State +DONE", rf"Index +{index}", "Post-check +passed: 7 rows, 0 of .*"):
        assert re.search(f"^{line}$", shown, re.MULTILINE), shown
    told = json.loads(done("operation", "status", operation, "--json"))
    assert (told["taskId"], told["completed"], told["status"]["deleted"]) == (operation, True, 3)
    assert told["operation"]["state"] == "DONE"
    task = told["operation"]["tasks"][0]["id"]
    raw = json.loads(done("operation", "status", task, "--json"))
    assert (raw["taskId"], raw["completed"], raw["status"]["deleted"], raw["operation"]) == (task, True, 3, None)
    assert re.search(r"^Deleted +3$", done("operation", "status", task), re.MULTILINE)
    assert "3 deleted" in done("operation", "watch", task)


def test_piped_watch_prints_progress(slow_server: Server) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    operation = start(slow_server, aspect)
    command = [
        sys.executable,
        "-m",
        "watchword",
        "operation",
        "watch",
        operation,
        "--url",
        slow_server.url,
        "--as",
        ADMIN,
    ]
    clean = without_settings()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean) as watching:
        assert watching.stdout is not None
        first = next(line for line in watching.stdout if line.startswith("RUNNING"))
        cancel(slow_server, operation)
        rest, errors = watching.communicate(timeout=SECONDS)
    assert "of 10,000 rows" in first
    assert rest.splitlines()[-1].startswith("CANCELLED")
    assert (watching.returncode, len(errors.splitlines())) == (1, 1)
    assert f"cancelled by {ADMIN}" in errors


def test_index_task_is_watched(slow_server: Server) -> None:
    def watched(old: int) -> Terminal | None:
        aspect = new_aspect()
        fill(slow_server, aspect, old=old, young=old)
        operation = start(slow_server, aspect)
        with at_terminal(slow_server, "operation", "watch", operation) as whole:
            was_at_work = whole.shows(" s left")
            document = "query ($id: String!) { operation(id: $id) { tasks { id } } }"
            task = slow_server.ask(document, {"id": operation}, actor=ADMIN)["operation"]["tasks"][0]["id"]
            with at_terminal(slow_server, "operation", "watch", task) as part:
                assert part.finish() == 0
            assert whole.finish() == 0
        assert f"{old:,} deleted" in part.text
        return part if was_at_work and "━" in part.text else None

    assert "rows" in seen_in_time(watched, 1_000, 8_000).text


def test_operations_are_listed_newest_first(server: Server, run: Run, done: Done) -> None:
    made = []
    for _ in range(3):
        made.append(start(server, "operation"))
        done("operation", "watch", made[-1])
    listed = json.loads(run("operation", "list", "--limit", "3", "--json").stdout)
    assert [one["id"] for one in listed] == list(reversed(made))
    shown = run("operation", "list", "--limit", "2")
    lines = shown.stdout.splitlines()
    assert shown.stderr == "watchword: There are more. To see all, pass --all.\n"
    assert [line.split()[:2] for line in lines[1:]] == [[made[2], "DONE"], [made[1], "DONE"]]
    assert len(json.loads(done("operation", "list", "--all", "--json"))) >= 3


def test_cancel_asks_at_a_terminal(slow_server: Server) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    operation = start(slow_server, aspect)
    with at_terminal(slow_server, "operation", "cancel", operation) as asked:
        asked.wait_for("[y/N]")
        asked.enter("n\n")
        assert asked.finish() == 1
    with at_terminal(slow_server, "operation", "cancel", operation) as asked:
        asked.wait_for("[y/N]")
        asked.enter("y\n")
        assert asked.finish() == 0
    assert f"Cancelled {operation}" in asked.text
    with at_terminal(slow_server, "operation", "watch", operation) as over:
        assert over.finish() == 1


def test_cancel_without_a_terminal_needs_yes(slow_server: Server, run_slowly: Run) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    operation = start(slow_server, aspect)
    refused = run_slowly("operation", "cancel", operation)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("watchword: Not a terminal. Pass --yes to confirm.")
    first = run_slowly("operation", "cancel", operation, "--yes")
    assert (first.returncode, first.stderr, first.stdout.splitlines()[-1]) == (0, "", f"Cancelled {operation}")
    watched = run_slowly("operation", "watch", operation, "--json")
    assert (watched.returncode, json.loads(watched.stdout)["state"]) == (1, "CANCELLED")
    again = run_slowly("operation", "cancel", operation, "--yes")
    assert (again.returncode, again.stdout, len(again.stderr.splitlines())) == (1, "", 1)


def test_watch_and_cancel_print_the_operation_as_json(slow_server: Server, run_slowly: Run) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    operation = start(slow_server, aspect)
    cancelled = run_slowly("operation", "cancel", operation, "--yes", "-o", "json")
    assert (cancelled.returncode, json.loads(cancelled.stdout)["state"]) == (0, "CANCELLED"), cancelled.stderr
    fill(slow_server, aspect := new_aspect(), old=10, young=10)
    done = run_slowly("operation", "watch", start(slow_server, aspect), "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["state"]) == (0, "", "DONE")


MALFORMED = ["", "x", "a:", ":1", "a:b", "a:1:2", "a:-1", f"a:{10**40}", "a/b:1", "*:1"]


@pytest.mark.parametrize("words", [*(("status", task) for task in MALFORMED), ("watch", "x"), ("cancel", "x")])
def test_malformed_operation_id_is_a_usage_error(words: tuple[str, str]) -> None:
    ran = watchword("operation", *words, "--as", ADMIN)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stderr
    assert "<node>:<number>" in ran.stderr


@pytest.mark.parametrize(
    "words", [("status", "nobody:12345"), ("status", "-h:1"), ("watch", "--as:1"), ("cancel", "007:007")], ids=" ".join
)
def test_unknown_operation_id_is_reported(run: Run, words: tuple[str, str]) -> None:
    ran = run("operation", *words)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1), ran.stderr


def test_task_is_another_name_of_operation(run: Run) -> None:
    assert run("task", "list").stdout == run("operation", "list").stdout
