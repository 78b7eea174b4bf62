"""The Helm chart: what it makes of its values, which values it rejects, and that each is documented."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.charts import (
    CHART,
    EVERYTHING,
    POSTGRESQL,
    ChartRefused,
    container_of,
    pod_of,
    rendered,
    run_helm,
    template,
    variables_of,
)
from tests.support.clients import client_env
from tests.support.pages import ROOT
from watchword import __version__
from watchword.settings import TABLE

pytestmark = pytest.mark.usefixtures("helm")

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def validate(text: str, folder: Path, versions: tuple[str, ...]) -> str:
    """What the schemas of Kubernetes say against it. They do not have the kinds of others."""
    parts = [
        part for part in yaml.safe_load_all(text) if part and not re.search(r"monitoring|gateway", part["apiVersion"])
    ]
    file = folder / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(parts))
    program = client_env("kubernetes") / "bin/kubernetes-validate"
    said = ""
    for version in versions:
        done = subprocess.run(
            [program, "--strict", "--quiet", "-k", version, file], capture_output=True, text=True, check=False
        )
        said += done.stdout + done.stderr
        assert (done.returncode == 0) == (not said), said
    return said


KINDS: tuple[tuple[str | Path, ...], ...] = ((), POSTGRESQL, ("--values", EVERYTHING))


def test_helm_lint_accepts_the_chart() -> None:
    for flags in KINDS:
        assert "0 chart(s) failed" in run_helm("lint", "--strict", CHART, *flags)


def test_manifests_match_the_schemas_of_the_oldest_and_newest_kubernetes(tmp_path: Path) -> None:
    assert validate("---\n".join(template(*flags) for flags in KINDS), tmp_path, ("1.25", "1.37")) == ""


@pytest.mark.soak
def test_manifests_match_the_schemas_of_every_kubernetes_between(tmp_path: Path) -> None:
    versions = tuple(f"1.{minor}" for minor in range(26, 37))
    assert validate("---\n".join(template(*flags) for flags in KINDS), tmp_path, versions) == ""


def test_schema_check_finds_an_unknown_field(tmp_path: Path) -> None:
    assert "fsGrup" in validate(template().replace("fsGroup:", "fsGrup:"), tmp_path, ("1.37",))


def test_sqlite_is_one_pod_with_a_volume() -> None:
    made = rendered()
    assert sorted(made) == ["NetworkPolicy", "Service", "StatefulSet"]
    spec = made["StatefulSet"]["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (1, made["Service"]["metadata"]["name"])
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert not any(volume["name"] == "data" for volume in pod_of(made)["volumes"])


def test_sqlite_stays_one_pod_whatever_replicas_says() -> None:
    made = rendered("--set", "replicas=3")
    assert made["StatefulSet"]["spec"]["replicas"] == 1
    assert "PodDisruptionBudget" not in made


def test_existing_claim_is_mounted() -> None:
    made = rendered("--set", "persistence.existingClaim=mine")
    assert "volumeClaimTemplates" not in made["StatefulSet"]["spec"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}} in pod_of(made)["volumes"]


def test_postgresql_is_several_pods_that_are_replaced_one_by_one() -> None:
    made = rendered(*POSTGRESQL)
    assert sorted(made) == ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"]
    spec = made["Deployment"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert "podAntiAffinity" in pod_of(made)["affinity"]
    assert "PodDisruptionBudget" not in rendered(*POSTGRESQL, "--set", "replicas=1")


def test_secret_is_mounted_for_the_group_of_the_pod_only() -> None:
    made = rendered(*POSTGRESQL, "--set", "secret.files.WATCHWORD_OIDC_CLIENT_SECRET_FILE=oidc", "--set", "user=20001")
    (secret,) = (volume["secret"] for volume in pod_of(made)["volumes"] if "secret" in volume)
    assert (secret["secretName"], secret["defaultMode"]) == ("watchword", 0o440)
    (mount,) = (one for one in container_of(made)["volumeMounts"] if one["name"] == "secret")
    assert mount["readOnly"] is True
    variables = variables_of(made)
    named = {"WATCHWORD_MASTER_KEY_FILE": "master.key", "WATCHWORD_DATABASE_URL_FILE": "database-url"}
    named["WATCHWORD_OIDC_CLIENT_SECRET_FILE"] = "oidc"
    assert {name: variables[name] for name in named} == {
        name: f"{mount['mountPath']}/{key}" for name, key in named.items()
    }
    group = pod_of(made)["securityContext"]["fsGroup"]
    assert (group, variables["WATCHWORD_TRUSTED_GROUP"]) == (20001, "20001")


def test_pod_has_no_rights_that_it_does_not_need() -> None:
    made = rendered()
    pod, container = pod_of(made), container_of(made)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip


def test_pod_has_the_user_the_port_and_the_folder_of_the_image() -> None:
    text = (ROOT / "Containerfile").read_text()
    made = rendered()
    assert f"USER {pod_of(made)['securityContext']['runAsUser']}:" in text
    assert f"EXPOSE {container_of(made)['ports'][0]['containerPort']}\n" in text
    variables = variables_of(made)
    for name in ("WATCHWORD_HOST", "WATCHWORD_DATA_DIR"):
        assert f"{name}={variables[name]}" in text


def test_pod_has_longer_to_stop_than_requests_in_flight() -> None:
    pod = pod_of(rendered())
    (pause,) = (int(one["lifecycle"]["preStop"]["exec"]["command"][1]) for one in pod["containers"])
    assert pod["terminationGracePeriodSeconds"] >= pause + 35


def test_probes_ask_over_tls_where_the_service_has_a_certificate() -> None:
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    plain = container_of(rendered())
    assert [plain[name]["httpGet"]["path"] for name in names] == ["/health/live", "/health/live", "/health/ready"]
    assert not any("scheme" in plain[name]["httpGet"] for name in names)
    over_tls = container_of(rendered("--set", "settings.WATCHWORD_TLS_CERT=/x,settings.WATCHWORD_TLS_KEY=/y"))
    assert [over_tls[name]["httpGet"]["scheme"] for name in names] == ["HTTPS"] * 3


def test_policy_file_is_passed_on_unchanged_and_a_new_one_restarts_the_pods(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(' # <x> & "y" {{ .Values }}\nset: é\n\n')
    made = rendered("--set-file", f"policyFile={file}")
    assert made["ConfigMap"]["data"] == {"policies.yaml": file.read_text()}
    assert variables_of(made)["WATCHWORD_POLICY_FILE"] == "/run/watchword/policies.yaml"
    before = made["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    file.write_text("set: b\n")
    after = rendered("--set-file", f"policyFile={file}")["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert before != after


def test_network_policy_admits_pods_of_the_cluster_to_requests_and_nobody_to_metrics() -> None:
    (rule,) = rendered()["NetworkPolicy"]["spec"]["ingress"]
    assert rule == {"ports": [{"port": "http"}], "from": [{"namespaceSelector": {}}]}


def test_network_policy_without_peers_admits_nobody() -> None:
    """A rule whose list of peers is empty would admit everyone."""
    spec = rendered("--set-json", "networkPolicy.from=[]")["NetworkPolicy"]["spec"]
    assert (spec["ingress"], spec["policyTypes"]) == ([], ["Ingress"])


def test_image_with_a_digest_has_no_tag() -> None:
    digest = f"sha256:{'0' * 64}"
    assert container_of(rendered())["image"] == f"watchword:{__version__}"
    flags = ("--set", f"image.repository=registry.example.org/watchword,image.tag=x,image.digest={digest}")
    assert container_of(rendered(*flags))["image"] == f"registry.example.org/watchword@{digest}"


def test_everything_on_makes_every_kind() -> None:
    made = rendered("--values", EVERYTHING)
    files = {path for path in (CHART / "templates").glob("*.yaml") if path.name != "statefulset.yaml"}
    assert len(made) == len(files)
    assert made["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == "metrics"
    assert [rule["ports"][0]["port"] for rule in made["NetworkPolicy"]["spec"]["ingress"]] == ["http", "metrics"]


REJECTED = {
    "store=mysql": "store",
    "store=postgresql": "secret.name",
    "replicas=0": "replicas",
    "user=0": "user",
    "image.digest=latest": "image.digest",
    "publicUrl=tokens.example.org": "publicUrl",
    "settings.LOG_LEVEL=info": "LOG_LEVEL",
    "settings.WATCHWORD_TRUSTED_GROUP=0": "WATCHWORD_TRUSTED_GROUP",
    "settings.WATCHWORD_DATABASE_URL=postgresql://x": "WATCHWORD_DATABASE_URL",
    "settings.WATCHWORD_INDEX_URL=http://me:secret@search": "WATCHWORD_INDEX_URL",
    "replica=2": "replica",
    "ingress.enabled=true": "ingress.host",
    "httpRoute.enabled=true": "httpRoute.parentRefs",
}


@pytest.mark.parametrize(("value", "named"), REJECTED.items())
def test_wrong_value_is_rejected_by_its_name(value: str, named: str) -> None:
    with pytest.raises(ChartRefused, match=re.escape(named).replace(r"\.", "[./]")):
        template("--set", value)


def leaves(schema: dict[str, Any] = SCHEMA, path: str = "") -> Iterator[str]:
    """The paths of the values: a part of the schema that has properties of its own is none."""
    for name, part in schema["properties"].items():
        if part.get("additionalProperties") is False:
            yield from leaves(part, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_schema_has_exactly_the_values_of_the_chart() -> None:
    assert list(SCHEMA["properties"]) == [*VALUES, "global"]  # Helm adds `global` to subcharts
    for name, part in SCHEMA["properties"].items():
        if part.get("additionalProperties") is False:
            assert list(part["properties"]) == list(VALUES[name]), name


def test_reference_page_documents_every_value() -> None:
    text = (ROOT / "docs/reference/chart.md").read_text()
    assert re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE) == list(leaves())[:-1]


def test_templates_use_every_value() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    unused = [path for path in leaves() if not re.search(rf"\.{path.rpartition('.')[2]}\b", text)]
    assert unused == ["global"]


def test_settings_of_the_chart_and_secrets_are_rejected_as_plain_settings() -> None:
    rejected = set(SCHEMA["properties"]["settings"]["propertyNames"]["not"]["enum"])
    given = yaml.safe_load(EVERYTHING.read_text())
    own = set(variables_of(rendered("--values", EVERYTHING))) - {*given["settings"], *given["secret"]["files"]}
    secret = {one.variable for one in TABLE if one.secret} | {one.file_variable for one in TABLE if one.secret}
    with_pattern = set(SCHEMA["properties"]["settings"]["properties"])
    assert with_pattern <= secret
    assert rejected | with_pattern == own | secret
    assert set(SCHEMA["properties"]["secret"]["properties"]["files"]["propertyNames"]["not"]["enum"]) == own


def test_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
