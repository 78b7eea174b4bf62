"""A release of the chart in a real kube-apiserver: installed, upgraded, rolled back and removed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer, running_api_server
from tests.support.charts import CHART, EVERYTHING, POSTGRESQL, pod_of, rendered, run_helm

pytestmark = [pytest.mark.long, pytest.mark.soak]

SHAPES: dict[str, tuple[str | Path, ...]] = {
    "sqlite": (),
    "postgresql": POSTGRESQL,
    # Other programs bring the kinds of the two that are off.
    "everything": ("--values", EVERYTHING, "--set", "serviceMonitor.enabled=false,httpRoute.enabled=false"),
}
CHANGED = ("--set", "settings.WATCHWORD_LOG_LEVEL=debug")


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("cluster") / "server") as running:
        yield running


def holds(stored: Any, wanted: Any) -> bool:
    """Whether what is stored has everything that was wanted. The server adds defaults, and leaves out what is empty."""
    match wanted:
        case dict():
            filled = {name: value for name, value in wanted.items() if value not in (None, [], {})}
            return isinstance(stored, dict) and all(holds(stored.get(name), value) for name, value in filled.items())
        case list():
            return isinstance(stored, list) and len(stored) == len(wanted) and all(map(holds, stored, wanted))
    return bool(stored == wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_release_is_installed_upgraded_rolled_back_and_removed(api_server: ApiServer, helm: str, shape: str) -> None:
    namespace, flags = f"{shape}-{helm}", SHAPES[shape]
    first, second = rendered(*flags), rendered(*flags, *CHANGED)
    assert first != second

    def run(*words: str | Path) -> None:
        run_helm(*words, "--namespace", namespace, "--kubeconfig", api_server.config)

    def missing(wanted: dict[str, Any]) -> list[str]:
        return [kind for kind, part in wanted.items() if not holds(api_server.stored(namespace, part), part)]

    run("install", "watchword", CHART, *flags, "--create-namespace")
    assert missing(first) == []
    run("upgrade", "watchword", CHART, *flags, *CHANGED)
    assert missing(second) == []
    run("rollback", "watchword", "1")
    assert missing(first) == []
    run("uninstall", "watchword")
    assert [kind for kind, part in first.items() if api_server.stored(namespace, part)] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_pod_is_accepted_where_only_restricted_ones_are(api_server: ApiServer, shape: str) -> None:
    """No controller makes a pod of the template here, so the test does, and adds the volume of a StatefulSet."""
    namespace = f"restricted-{shape}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    path = f"/api/v1/namespaces/{namespace}"
    api_server.create(f"{path}/serviceaccounts", {"metadata": {"name": "default"}})
    spec = pod_of(rendered(*SHAPES[shape]))
    if not any(volume["name"] == "data" for volume in spec["volumes"]):
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data-watchword-0"}})
    api_server.create(f"{path}/pods", {"metadata": {"name": "watchword"}, "spec": spec})
    worse = spec | {"securityContext": {**spec["securityContext"], "runAsNonRoot": False}}
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        api_server.create(f"{path}/pods", {"metadata": {"name": "root"}, "spec": worse})
