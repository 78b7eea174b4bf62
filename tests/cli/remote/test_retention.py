"""`watchword retention`: rules from files, holds, and rules from a recipe of datahub-gc."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.indexed import DAY, EmbeddedIndex, Series, times
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


def test_file_of_rules_is_previewed_applied_shown_and_deleted(run: Run, done: Done, tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(FILE)
    preview = run("retention", "apply", str(file), "--dry-run")
    assert preview.returncode == 3
    assert preview.stdout.splitlines()[:3] == ["+ chart.byFile", '    keep: "P30D"', '    maxSize: "20GB"']
    assert preview.stdout.endswith("2 to create, 0 to update, 0 unchanged.\n")
    assert done("retention", "apply", str(file)).endswith("2 created, 0 updated, 0 unchanged.\n")
    changed = FILE.replace("keep: P30D", "keep: P31D").replace("    maxSize: 20GB\n", "")
    assert done("retention", "apply", "-", stdin=changed) == (
        '~ chart.byFile\n    keep: "P30D" -> "P31D"\n    maxSize: "20GB" -> null\n0 created, 1 updated, 1 unchanged.\n'
    )
    assert done("retention", "apply", "-", "--dry-run", stdin=changed) == "0 to create, 0 to update, 2 unchanged.\n"
    shown = done("retention", "show", "CHART.byfile")
    assert "older than P31D" in shown
    assert "22:00-06:00" in shown
    rules = {rule["series"]: rule for rule in json.loads(done("retention", "list", "-o", "json"))}
    assert rules["chart.other"]["mode"] == "ENFORCE"
    exported = run("policy", "export").stdout  # standard error may name sets of other tests
    assert "- series: chart.byFile\n  keep: P31D\n" in exported
    found = read_policy_text(exported.encode(), "x").declared[RULE_PART]
    assert {"chart.byFile", "chart.other"} <= {one.rule.series for one in found}
    for series in ("chart.byFile", "chart.other"):
        assert done("retention", "delete", series, "--yes") == f"Deleted the retention rule of {series}\n"
    gone = run("retention", "show", "chart.byFile")
    assert (gone.returncode, gone.stdout) == (1, "")


def test_missing_file_is_named(run: Run) -> None:
    ran = run("retention", "apply", "nope.yaml")
    assert (ran.returncode, ran.stderr) == (1, "watchword: nope.yaml cannot be read: No such file or directory.\n")


def test_file_takes_durations_in_every_form(run: Run, done: Done) -> None:
    rules = "retention:\n  - {series: chart.forms, keep: one_day, removeAfter: 90d}\n"
    lines = run("retention", "apply", "-", "--dry-run", stdin=rules).stdout.splitlines()
    assert lines[1:3] == ['    keep: "P1D"', '    removeAfter: "P90D"']
    declared = "policies: []\n" + rules.replace("90d", "PT48H")
    assert '    removeAfter: "P2D"' in run("policy", "diff", "-", stdin=declared).stdout


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (
            "retention:\n  - series: chart.a\n    keep: 30x\n",
            1,
            "line 3: retention[0].keep must be a duration such as 30d",
        ),
        ("retention:\n  - series: *\n    keep: P1D\n", 1, "line 2: this is not YAML"),
        ("policies: []\nset: a\nretention: []\n", 2, "FILE must have only the key retention"),
    ],
)
def test_wrong_file_is_rejected_before_anything_changes(run: Run, text: str, code: int, told: str) -> None:
    ran = run("retention", "apply", "-", stdin=text)
    assert ran.returncode == code
    assert told in ran.stderr


def test_policy_apply_shows_rules(run: Run, done: Done) -> None:
    text = "set: cli-retention\n" + FILE
    assert run("policy", "diff", "-", stdin=text).stdout.startswith("+ retention chart.byFile\n")
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
    refused = run_slowly("index", "truncate", series.entity, series.aspect, "--older-than", "0d", "--yes")
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
    rule = f"retention:\n  - {{series: {name}, keep: 10d, atMost: 90%, mode: enforce}}\n"
    done("retention", "apply", "-", stdin=rule)
    ran = json.loads(done("retention", "run", name, "--json", *more))
    assert {"number", "series", "rule", "operation"} <= ran.keys()
    assert ran["series"] == name.lower()
    assert ran["operation"]["id"]
    if not more:
        assert (ran["state"], ran["operation"]["state"]) == ("DONE", "DONE")
    done("retention", "delete", name, "--yes")
