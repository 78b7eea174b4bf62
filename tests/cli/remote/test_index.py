"""`watchword index sizes` and `watchword index truncate`: plan, prompt and progress."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cli.remote.conftest import Run
from tests.support.series import fill, new_aspect, rows_of
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal
from tests.support.waiting import seen_in_time, until

Done = Callable[..., str]
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
GOES_ON = ("RUNNING", "VERIFYING", "DONE")


def at_terminal(server: Server, *words: str, **how: object) -> Terminal:
    return Terminal(*words, "--url", server.url, "--as", ADMIN, **how)  # type: ignore[arg-type]


def state_of(server: Server, operation: str) -> str:
    document = "query ($id: String!) { operation(id: $id) { state } }"
    state: str = server.ask(document, {"id": operation}, actor=ADMIN)["operation"]["state"]
    return state


def cancel(server: Server, operation: str) -> None:
    server.ask("mutation ($id: String!) { cancelOperation(id: $id) { id } }", {"id": operation}, actor=ADMIN)
    until(lambda: state_of(server, operation) == "CANCELLED", "it is cancelled")


def test_sizes_are_listed_as_columns_and_as_json(server: Server, done: Done) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=1, young=2)
    (line,) = [line for line in done("index", "sizes", "--all").splitlines() if line.startswith(index)]
    assert line.split()[1:3] == [f"dataset.{aspect}", "3"]
    (size,) = [one for one in json.loads(done("index", "sizes", "--all", "--json")) if one["indexName"] == index]
    assert (size["entityName"], size["aspectName"], size["rows"]) == ("dataset", aspect, 3)


def test_dry_run_shows_the_plan_and_changes_nothing(server: Server, done: Done) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=3, young=7)
    words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--dry-run")
    shown = done(*words)
    assert re.search(rf"^Index +{index}$", shown, re.MULTILINE)
    assert re.search(r"^To delete +3 of 10 rows \(30\.00%\)$", shown, re.MULTILINE)
    assert "DELETE_BY_QUERY: the embedded index always deletes in batches" in shown
    assert "dry run" in shown
    plan = json.loads(done(*words, "--json", "--copy", "--batch-size", "7", "--timeout", "60"))
    assert (plan["rowsToDelete"], plan["batchSize"], plan["timeoutSeconds"]) == (3, 7, 60)
    assert (plan["strategy"], plan["reason"]) == ("DELETE_BY_QUERY", "the embedded index always deletes in batches")
    assert rows_of(server, index) == 10


@pytest.mark.parametrize("old", [3, 8])
def test_truncate_prints_progress_lines_to_a_pipe(server: Server, done: Done, old: int) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=old, young=10 - old)
    lines = done("index", "truncate", f"dataset.{aspect}", "--until", "P30D", "--yes").splitlines()
    assert any(line.startswith("Strategy") and "DELETE_BY_QUERY" in line for line in lines)
    told = [line.split()[0] for line in lines if re.match(r"[A-Z]{4,} ", line)]
    assert told[-1] == "DONE"
    assert len(told) == len(set(told))
    assert lines[-2].startswith("Done in ")
    assert lines[-1] == f"Post-check passed: {10 - old} rows, none of them old."
    assert not COLOURS.search("".join(lines))
    assert rows_of(server, index) == 10 - old


def test_truncate_without_a_terminal_needs_yes(server: Server, run: Run) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=3, young=7)
    ran = run("index", "truncate", f"dataset.{aspect}", "--older-than", "30d")
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert "--yes" in ran.stderr
    assert rows_of(server, index) == 10


def test_terminal_prompt_follows_the_plan_and_defaults_to_no(server: Server) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=3, young=7)
    with at_terminal(server, "index", "truncate", f"dataset.{aspect}", "--older-than", "30d") as terminal:
        terminal.wait_for("[y/N]")
        assert terminal.text.index("3 of 10 rows (30.00%)") < terminal.text.index("Delete 3 of 10 rows")
        terminal.enter("\n")
        assert terminal.finish() == 1
    assert "Nothing was changed." in terminal.text
    assert rows_of(server, index) == 10


@pytest.mark.parametrize("columns", [40, 100])
def test_terminal_shows_a_progress_bar_and_the_result(slow_server: Server, columns: int) -> None:
    aspect = new_aspect()

    def drawn_of(old: int) -> tuple[Terminal, list[str], list[float]] | None:
        fill(slow_server, aspect, old=old, young=old + 500)
        words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d")
        with at_terminal(slow_server, *words, columns=columns) as terminal:
            terminal.wait_for("[y/N]")
            terminal.enter("y\n")
            assert terminal.finish() == 0
        drawn = [line for line in re.split(r"[\r\n]+", terminal.text) if "RUNNING" in line]
        parts = [float(found[1]) for line in drawn if (found := re.search(r"([\d.]+)%", line))]
        return (terminal, drawn, parts) if " s left" in terminal.text and len(set(parts)) > 2 else None

    terminal, drawn, parts = seen_in_time(drawn_of, 1_000, 8_000)
    assert any("━" in line for line in drawn)
    assert parts == sorted(parts)  # it moves, and never back
    assert COLOURS.search(terminal.output)
    assert max(map(len, drawn)) <= columns
    assert ("rows/s" in "".join(drawn)) == (columns == 100)
    kept = rows_of(slow_server, f"dataset_{aspect}aspect_v1")
    assert kept in (1_500, 8_500)
    assert f"Post-check passed: {kept:,} rows, none of them old" in terminal.text


def test_truncate_with_nothing_to_delete_does_not_prompt(server: Server) -> None:
    aspect = new_aspect()
    fill(server, aspect, old=0, young=3)
    with at_terminal(server, "index", "truncate", f"dataset.{aspect}", "--older-than", "30d") as terminal:
        assert terminal.finish() == 0
    assert "Nothing to delete" in terminal.text
    assert "[y/N]" not in terminal.text


def test_interrupted_truncation_continues_and_can_be_watched_again(slow_server: Server) -> None:
    def picked_up_again(old: int) -> Terminal | None:
        aspect = new_aspect()
        index = fill(slow_server, aspect, old=old, young=old)
        words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes")
        with at_terminal(slow_server, *words) as terminal:
            code = terminal.interrupt() if terminal.shows("RUNNING") else 0
        if "Post-check passed" in terminal.text:
            return None
        assert code == 130
        again = re.search(r"To watch it again: watchword (operation watch (\S+))", terminal.text)
        assert again is not None
        assert "\x1b[?25h" in terminal.output  # the cursor is visible again
        assert terminal.output.endswith("\n")  # the cursor is at the start of a line
        assert state_of(slow_server, again[2]) in GOES_ON
        with at_terminal(slow_server, *again[1].split()) as picked_up:
            assert picked_up.finish() == 0
        assert "Post-check passed" in picked_up.text
        assert rows_of(slow_server, index) == old
        return picked_up if "━" in picked_up.text else None

    seen_in_time(picked_up_again, 1_500, 12_000)


def test_running_operation_on_the_same_index_is_named(slow_server: Server, run_slowly: Run) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes")
    started = run_slowly(*words, "--no-wait")
    operation = started.stdout.rstrip().rpartition(" ")[2]
    second = run_slowly(*words)
    cancel(slow_server, operation)
    assert (started.returncode, started.stderr) == (0, "")
    assert second.returncode == 1
    assert f"watchword operation watch {operation}" in second.stderr
    assert len(second.stderr.splitlines()) == 1


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_truncate_prints_no_colour_with_no_color(slow_server: Server, env: dict[str, str]) -> None:
    def shown(old: int) -> Terminal | None:
        aspect = new_aspect()
        fill(slow_server, aspect, old=old, young=old + 100)
        words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes")
        with at_terminal(slow_server, *words, env=env) as terminal:
            assert terminal.finish() == 0
        return terminal if "RUNNING" in terminal.output else None

    terminal = seen_in_time(shown, 300, 4_000)
    assert not COLOURS.search(terminal.output)
    if "TERM" in env:
        assert "\x1b" not in terminal.output


def test_truncate_json_is_only_the_finished_operation(server: Server, done: Done) -> None:
    aspect = new_aspect()
    fill(server, aspect, old=3, young=7)
    words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes", "--json")
    ended = json.loads(done(*words))
    assert (ended["state"], ended["plan"]["rowsToDelete"], ended["postCheck"]["passed"]) == ("DONE", 3, True)
    assert json.loads(done(*words)) is None


def test_operation_that_times_out_fails_with_the_reason(slow_server: Server, run_slowly: Run) -> None:
    aspect = new_aspect()
    fill(slow_server, aspect, old=10_000, young=10_000)
    words = ("index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes", "--timeout", "1")
    ran = run_slowly(*words)
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "timeoutSeconds" in line
    assert "watchword event list --target" in line


def test_watching_survives_a_server_restart(make_server: Callable[..., Server]) -> None:
    server = make_server("--index-rate", "500")

    def waited_for(old: int) -> Terminal | None:
        aspect = new_aspect()
        index = fill(server, aspect, old=old, young=old)
        with at_terminal(server, "index", "truncate", f"dataset.{aspect}", "--older-than", "30d", "--yes") as terminal:
            was_at_work = terminal.shows(" s left")
            server.stop()
            server.start()
            assert terminal.finish(240) == 0
        assert "Post-check passed" in terminal.text
        assert rows_of(server, index) == old
        return terminal if was_at_work else None

    seen_in_time(waited_for, 3_000, 20_000)


def test_truncate_denial_names_the_privilege(server: Server, run: Run, actor: str) -> None:
    words = ("index", "truncate", "dataset.operation", "--older-than", "30d", "--yes")
    for denied, privilege in ((words, "Truncate"), (("index", "sizes"), "Sizes"), (("operation", "list"), "Truncate")):
        ran = run(*denied, caller=actor)
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)
        assert privilege.lower() in ran.stderr.lower()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("dataset.operation",), 2, "--older-than"),
        (("dataset.operation", "--older-than", "1d", "--until", "P1D"), 2, "--until"),
        (("dataset.operation", "--older-than", "soon"), 2, "30d"),
        (("dataset.operation", "--older-than", "-1d"), 2, "30d"),
        (("dataset.operation", "--older-than", "99999d"), 2, "1970"),
        (("dataset.operation", "--until", "2999-01-01"), 2, "--until"),
        (("dataset.operation", "--until", "1960-01-01"), 2, "--until"),
        (("dataset.operation", "--until", "yesterday"), 2, "P7D"),
        (("dataset.operation", "--older-than", "1d", "--delete", "--copy"), 2, "--copy"),
        (("dataset.operation", "--older-than", "1d", "--batch-size", "0"), 2, "--batch-size"),
        (("dataset.operation", "--older-than", "1d", "--batch-size", "10001"), 1, "--batch-size"),
        ((), 2, "ENTITY.ASPECT"),
        (("dataset.neverHeardOf", "--older-than", "1d"), 1, "neverHeardOf"),
        *(
            ((word, "--older-than", "1d"), 2, "ENTITY.ASPECT must be")
            for word in ("dataset", "*", "*.operation", "dataset._all", "dataset.../x", "dataset.")
        ),
    ],
)
def test_usage_error_is_one_line_with_the_allowed_values(
    run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = run("index", "truncate", *words, "--yes")
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (code, "", 1), ran.stderr
    assert said in ran.stderr


def test_sample_series_are_created_sized_and_truncated(make_server: Callable[..., Server]) -> None:
    server = make_server()
    made = server.command_line("index", "load", "--demo", "--rows", "900")
    assert made.returncode == 0, made.stderr
    try_next = re.search(r"try: watchword (index truncate (\w+)\.(\w+) .*)$", made.stdout, re.MULTILINE)
    assert try_next is not None
    index = f"{try_next[2]}_{try_next[3].lower()}aspect_v1"
    assert rows_of(server, index) == 900
    with Terminal(*try_next[1].split(), "--url", server.url) as dry:
        assert dry.finish() == 0
    assert re.search(r"To delete +(600|601) of 900 rows", dry.text), dry.text
    with Terminal(*try_next[1].replace("--dry-run", "--yes").split(), "--url", server.url) as real:
        assert real.finish() == 0
    assert "Post-check passed" in real.text
    assert rows_of(server, index) in (299, 300)
