"""The chart of deploy/helm as Helm renders it."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.clients import client_env
from tests.support.go_programs import go_program
from tests.support.pages import ROOT
from tests.support.waiting import SECONDS

CHART = ROOT / "deploy/helm/watchword"
EVERYTHING = ROOT / "tests/kubernetes/everything.yaml"
POSTGRESQL = ("--set", "store=postgresql,secret.name=watchword")
Manifest = dict[str, Any]


class ChartRefused(AssertionError):
    """Helm rejected the values."""


def helm3() -> Path:
    return client_env("kubernetes") / "bin/helm"


def helm4() -> Path:
    return go_program("helm")


helm = helm3
"""The one that runs; the fixture `helm` of the tests of the chart sets it."""


def run_helm(*words: str | Path) -> str:
    done = subprocess.run([helm(), *words], capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise ChartRefused(done.stderr)
    return done.stdout


def template(*flags: str | Path) -> str:
    return run_helm("template", "watchword", CHART, *flags)


def rendered(*flags: str | Path) -> dict[str, Manifest]:
    """What the chart makes of these values, by kind."""
    parts = [part for part in yaml.safe_load_all(template(*flags)) if part]
    made = {part["kind"]: part for part in parts}
    assert len(made) == len(parts)
    return made


def pod_of(made: dict[str, Manifest]) -> Manifest:
    (workload,) = (made[kind] for kind in ("Deployment", "StatefulSet") if kind in made)
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container_of(made: dict[str, Manifest]) -> Manifest:
    (container,) = pod_of(made)["containers"]
    found: Manifest = container
    return found


def variables_of(made: dict[str, Manifest]) -> dict[str, str]:
    variables = container_of(made)["env"]
    named = {one["name"]: one["value"] for one in variables}
    assert len(named) == len(variables)  # Kubernetes merges variables by name
    return named
