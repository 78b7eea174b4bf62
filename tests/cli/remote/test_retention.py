"""`watchword retention`: rules, holds, and rules from a recipe of datahub-gc."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.indexed import DAY, EmbeddedIndex, Series, times
from tests.support.series import fill, new_aspect
from tests.support.server import ADMIN, Server
from watchword.declared.policy_file import read_policy_text
from watchword.index.indices import DATAHUB_GC_SERIES
from watchword.retention.rules import RULE_PART

FILE = """\
retention:
  - series: chart.byFile
    keep: P30D
    maxSize: 20GB
    window: 22:00-06:00
  - {series: chart.other, keep: P7D, mode: enforce}
"""
Done = Callable[..., str]


def test_rule_is_created_updated_shown_and_deleted(run: Run, done: Done) -> None:
    words = ("--keep", "P30D", "--max-size", "20GB", "--window", "22:00-06:00")
    assert done("retention", "update", "chart.byFlags", *words) == "Updated the retention rule of chart.byFlags\n"
    done("retention", "update", "CHART.byflags", "--keep", "31d", "--remove-after", "32d", "--max-size", "")
    shown = done("retention", "show", "CHART.byflags")
    assert "older than P32D" in shown
    assert "20GB" not in shown
    assert "22:00-06:00" in shown
    done("retention", "update", "chart.other", "--keep", "7d", "--mode", "enforce", "--keep-last", "2")
    rules = {rule["series"]: rule for rule in json.loads(done("retention", "list", "--all", "-o", "json"))}
    assert (rules["chart.other"]["mode"], rules["chart.other"]["keepLast"]) == ("ENFORCE", 2)
    done("retention", "update", "chart.other", "--keep-last", "0")
    assert json.loads(done("retention", "show", "chart.other", "--json"))["keepLast"] is None
    exported = run("policy", "export").stdout  # standard error may name sets of other tests
    found = read_policy_text(exported.encode(), "x").declared[RULE_PART]
    assert {"chart.byFlags", "chart.other"} <= {one.rule.series for one in found}
    for series in ("chart.byFlags", "chart.other"):
        assert done("retention", "delete", series, "--yes") == f"Deleted the retention rule of {series}\n"
    gone = run("retention", "show", "chart.byFlags")
    assert (gone.returncode, gone.stdout) == (1, "")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "Pass what to change"),
        (("--mode", "enforce"), 2, "--keep must say how long rows are kept at least"),
        (("--keep", "30x"), 1, "--keep must be an ISO 8601 duration"),
        (("--keep", "3d", "--at-most", "5"), 1, "--at-most must be"),
    ],
)
def test_wrong_rule_is_rejected(run: Run, words: tuple[str, ...], code: int, told: str) -> None:
    ran = run("retention", "update", "chart.wrong", *words)
    assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
    assert run("retention", "show", "chart.wrong").returncode == 1


def test_rows_of_a_series_without_a_rule_are_shown_by_time(server: Server, done: Done) -> None:
    aspect = new_aspect()
    fill(server, aspect, old=10, young=40)
    shown = done("retention", "plan", f"dataset.{aspect}").partition("FROM ")[2]
    head, *spans = [line.split() for line in shown.splitlines()]
    assert head == ["ROWS", "TO", "REMOVE", "SHARE"]
    assert sum(int(span[1]) for span in spans) == 50
    (plan,) = json.loads(done("retention", "plan", f"dataset.{aspect}", "--json"))
    assert [span["rows"] for span in plan["spans"]] == [int(span[1]) for span in spans]
    assert plan["plan"] is None


def test_policy_apply_shows_rules(run: Run, done: Done) -> None:
    text = "set: cli-retention\n" + FILE
    assert run("policy", "apply", "-", "--dry-run", stdin=text).stdout.startswith("+ retention chart.byFile\n")
    assert done("policy", "apply", "-", stdin=text).endswith("2 created, 0 updated, 0 removed, 0 unchanged.\n")
    empty = "set: cli-retention\nretention: []\n"
    left = done("policy", "apply", "-", stdin=empty)
    assert "! retention chart.byFile\n    The file does not declare it. --prune removes it from the set" in left
    assert "- retention chart.other" in done("policy", "apply", "-", "--prune", "--yes", stdin=empty)


def test_hold_waits_for_the_operation_it_cancels(slow_server: Server, run_slowly: Run) -> None:
    series = Series(slow_server, EmbeddedIndex(), slow_server.create(ADMIN)["accessToken"])
    name, start = f"{series.entity}.{series.aspect}", time.time_ns() // 1_000_000
    series.load(times(3_000, start, step=DAY // 100))
    task = series.truncate(start, batchSize=50)
    held = run_slowly("retention", "hold", name, "--reason", "tax audit")
    assert held.returncode == 0, held.stderr
    assert held.stdout.startswith(f"Held. {name.lower()} is held by {ADMIN} since ")
    assert f"The operation {task} is over: CANCELLED. It removes nothing any more.\n" in held.stdout
    refused = run_slowly("index", "truncate", name, "--older-than", "0d", "--yes")
    assert refused.returncode == 1
    assert f"by {ADMIN}: tax audit. Nothing was removed." in refused.stderr
    assert "tax audit" in run_slowly("retention", "holds").stdout
    assert run_slowly("retention", "release", name).stdout == f"Released {name}\n"
    assert held.stderr == ""
    misspelt = run_slowly("retention", "hold", "datset.operation", "--reason", "tax audit")
    assert "There is no index of datset.operation and no rule for it." in misspelt.stderr
    assert run_slowly("retention", "release", "datset.operation").returncode == 0


def test_recipe_of_datahub_gc_becomes_rules_that_only_report(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "source:\n  type: datahub-gc\n  config:\n    truncate_index_older_than_days: 14\n    dry_run: true\n"
        "    query_cleanup: {enabled: true}\nschedule: {interval: 0 4 * * *, timezone: Europe/Berlin}\n"
    )
    ran = watchword("retention", "convert", "datahub-gc", str(recipe))
    assert ran.returncode == 0
    rules = [one.rule for one in read_policy_text(ran.stdout.encode(), "rules").declared[RULE_PART]]
    assert tuple(rule.series for rule in rules) == DATAHUB_GC_SERIES
    assert {(rule.keep, rule.mode.name, rule.schedule, rule.time_zone) for rule in rules} == {
        (14 * DAY, "REPORT", "0 4 * * *", "Europe/Berlin")
    }
    assert "mode: enforce" in ran.stdout
    assert [line.split()[1] for line in ran.stderr.splitlines()] == ["dry_run", "query_cleanup"]
    wrong = watchword("retention", "convert", "datahub-gc", "-", stdin="source: {type: mysql}")
    assert (wrong.returncode, wrong.stderr) == (1, "watchword: standard input: source.type must be datahub-gc.\n")


@pytest.mark.parametrize("more", [(), ("--no-wait",)], ids=["waits", "does not wait"])
def test_run_is_printed_as_json_whether_the_command_waits_or_not(
    server: Server, done: Done, more: tuple[str, ...]
) -> None:
    series = Series(server, EmbeddedIndex(), server.create(ADMIN)["accessToken"])
    name = f"{series.entity}.{series.aspect}"
    series.load(times(20, time.time_ns() // 1_000_000, step=DAY))
    done("retention", "update", name, "--keep", "10d", "--at-most", "90%", "--mode", "enforce")
    ran = json.loads(done("retention", "run", name, "--json", *more))
    assert {"number", "series", "rule", "operation"} <= ran.keys()
    assert ran["series"] == name.lower()
    assert ran["operation"]["id"]
    if not more:
        assert (ran["state"], ran["operation"]["state"]) == ("DONE", "DONE")
    done("retention", "delete", name, "--yes")
