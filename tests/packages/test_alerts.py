"""The alert rules and the dashboard in `deploy` are valid, and name metrics that the service has."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deployed import DEPLOY
from tests.support.pages import ROOT
from tests.support.server import Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

PAGE = ROOT / "docs/how-to/alerts.md"
RULES = DEPLOY / "prometheus/alerts.yml"
RULE_TESTS = Path(__file__).with_name("alerts.test.yml")
DASHBOARD = json.loads((DEPLOY / "grafana/watchword.json").read_text())
OF_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def promtool() -> str:
    return need_program("promtool", "prometheus")


def run(*command: str, given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    """Of the panels, with a value in place of each variable."""
    values = {"$job": "ww", "$instance": "a", "$__rate_interval": "5m"}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield re.sub(r"\$\w+", lambda found: values[found[0]], target["expr"])


def test_each_alert_fires_when_it_should_and_not_otherwise(promtool: str) -> None:
    run(promtool, "check", "rules", str(RULES))
    run(promtool, "test", "rules", str(RULE_TESTS))
    cases = [case for test in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts


def test_page_explains_every_alert() -> None:
    assert re.findall(r"^\| `(Watchword\w+)` \|", PAGE.read_text(), re.MULTILINE) == [rule["alert"] for rule in rules()]


def test_configuration_of_the_page_is_valid(promtool: str, tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (named,) = yaml.safe_load(shown)["rule_files"]
    file = tmp_path / "prometheus.yml"
    file.write_text(shown.replace(named, str(RULES)))
    run(promtool, "check", "config", str(file))


def test_dashboard_is_complete_and_its_queries_are_valid(promtool: str, tmp_path: Path) -> None:
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["targets"], panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    # promtool has no command for a single query: recording rules hold them.
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    run(promtool, "check", "rules", str(file))


def test_metrics_are_well_formed_and_include_all_that_alerts_and_dashboard_name(promtool: str, server: Server) -> None:
    assert server.verify("no token").status_code == 401
    assert server.http.get("/health").status_code == 200
    until(lambda: "watchword_tokens_unused{" in server.metrics(), "the tokens are counted")
    text = server.metrics()
    run(promtool, "check", "metrics", given=text)
    labels: dict[str, set[str]] = {}
    for name, pairs in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        labels.setdefault(name, set(OF_PROMETHEUS)).update(re.findall(r'(\w+)="', pairs))
    for query in (*queries(), *(rule["expr"] for rule in rules())):
        named = re.findall(r"(watchword_\w+)(?:\{([^}]*)\})?", query)
        assert named, query
        for name, matchers in named:
            assert name in labels, query
            assert set(re.findall(r'(\w+)=~?"', matchers)) <= labels[name], query
