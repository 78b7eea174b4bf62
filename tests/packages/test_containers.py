"""The container files: linters accept them. The service runs as they and the chart describe, without an engine."""

import json
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.charts import Manifest, container_of, pod_of, rendered, variables_of
from tests.support.clients import client_env
from tests.support.deployed import environment_of, make_packages
from tests.support.disks import no_disk_in_use
from tests.support.pages import ROOT
from tests.support.server import GENERATE, watchword
from tests.support.system import need_program, need_root
from tests.support.waiting import SECONDS
from watchword.settings import TABLE

CONTAINERFILE = ROOT / "Containerfile"
COMPOSE = ROOT / "compose.yaml"
PRODUCTION = ROOT / "compose.production.yaml"
CONTAIN = ROOT / "tests/support/contain.sh"
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "sh", str(CONTAIN))


def run_tool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program, *others = words
    command = [client_env("packages") / "bin" / program, *others]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=ROOT)


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the last stage, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE))
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    last = max(index for index, (word, _, _) in enumerate(lines) if word == "FROM")
    return [(word, rest) for word, _, rest in lines[last:]]


def instruction(word: str) -> str:
    (rest,) = [rest for one, rest in instructions() if one == word]
    return rest


def compose(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_hadolint_accepts_the_containerfile() -> None:
    done = run_tool("hadolint", "--no-color", CONTAINERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_rejects_a_root_user(tmp_path: Path) -> None:
    worse = tmp_path / "Containerfile"
    worse.write_text(CONTAINERFILE.read_text().replace("USER 10001:10001", "USER root"))
    done = run_tool("hadolint", "--no-color", worse)
    assert done.returncode != 0
    assert "root" in done.stdout


def test_compose_files_match_the_compose_schema(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = run_tool(*check, COMPOSE, PRODUCTION)
    assert done.returncode == 0, done.stdout
    worse = tmp_path / "compose.yaml"
    worse.write_text(COMPOSE.read_text().replace("read_only: true", "read_only: [true]"))
    assert run_tool(*check, worse).returncode != 0


def test_build_context_has_only_the_files_that_the_image_copies() -> None:
    lines = (ROOT / ".containerignore").read_text().splitlines()
    assert lines[1] == "*"
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    text = CONTAINERFILE.read_text()
    copied = {name for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for name in line.split()[:-1]}
    assert copied == kept
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_images_of_production_require_a_digest() -> None:
    services = compose(PRODUCTION)["services"]
    named = [
        services["watchword"]["build"]["args"]["BASE"],
        *(services[name]["image"] for name in ("postgres", "opensearch")),
    ]
    assert all(re.fullmatch(r"\$\{[A-Z]+_IMAGE:\?Set it in \.env to .* by its digest; .*\}", one) for one in named), (
        named
    )


def test_compose_file_starts_without_preparation() -> None:
    """It needs no other file, secret or variable than the repository has."""
    content = compose(COMPOSE)
    assert (list(content["services"]), set(content)) == (["watchword"], {"name", "services", "volumes"})
    assert re.findall(r"\$\{\w+(?!\w|:-)", COMPOSE.read_text()) == []
    assert re.search(r"^ARG BASE=\S+:\S+$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert content["name"] != compose(PRODUCTION)["name"]  # neither uses the other's volumes


def test_compose_services_drop_privileges_and_wait_for_dependencies() -> None:
    services = compose(PRODUCTION)["services"]
    trying = compose(COMPOSE)["services"]["watchword"]
    ours = services.pop("watchword")
    for name, service in {**services, "watchword": ours, "compose.yaml": trying}.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
    for service in (ours, trying):
        assert service["read_only"] is True
        assert service["user"] == instruction("USER")
        assert service["volumes"] == [f"data:{instruction('WORKDIR')}"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    check = instruction("HEALTHCHECK").partition(" CMD ")[2]
    assert trying["healthcheck"]["test"] == ["CMD", *json.loads(check)]
    assert {name: one["condition"] for name, one in ours["depends_on"].items()} == dict.fromkeys(
        services, "service_healthy"
    )
    assert all("healthcheck" in service and "ports" not in service for service in services.values())
    assert all(service["networks"] == ["inside"] for service in services.values())


@pytest.mark.parametrize("file", [COMPOSE, PRODUCTION], ids=lambda file: file.name)
def test_compose_file_sets_known_settings_and_no_secrets(file: Path) -> None:
    content = compose(file)
    ours = content["services"]["watchword"]
    secret = {setting.variable for setting in TABLE if setting.secret}
    known = {setting.variable for setting in TABLE} | {one.file_variable for one in TABLE if one.secret}
    assert set(ours["environment"]) <= known
    shown = {name: value for name, value in ours["environment"].items() if name in secret}
    assert not any("@" in value for value in shown.values())
    files = {value for value in ours["environment"].values() if value.startswith("/run/secrets/")}
    assert files == {f"/run/secrets/{name}" for name in ours.get("secrets", [])}
    assert set(ours.get("secrets", [])) <= set(content.get("secrets", []))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel, _ = make_packages(tmp_path_factory.mktemp("dist"))
    return environment_of(wheel, tmp_path_factory.mktemp("opt") / "watchword")


def test_service_runs_with_the_image_settings_on_a_read_only_root(environment: Path, tmp_path: Path) -> None:
    need_root("a root of its own is made of mounts")
    need_program("ip", "iproute2")
    user, _, group = instruction("USER").partition(":")
    assert json.loads(instruction("VOLUME")) == [instruction("WORKDIR")] == ["/data"]
    script = f"""
        {serving()}
        id -u; id -g; ls /data
        touch /x /usr/x /opt/watchword/x 2>&1 | grep -c 'Read-only file system'
        kill $!; wait $!; echo "ended $?"
        watchword health 2>&1 || echo "then $?"
    """
    root, data = tmp_path / "root", tmp_path / "data"
    root.mkdir()
    data.mkdir(0o700)
    os.chown(data, int(user), int(group))
    env = image_environment()
    command = [
        *NAMESPACES, str(root), str(environment), str(data), user, group,
        "env", "-i", *(f"{name}={value}" for name, value in env.items()), "sh", "-c", script,
    ]  # fmt: skip
    done = run_contained(command)
    assert done.returncode == 0, done.stdout + done.stderr
    health, uid, gid, *rest = done.stdout.splitlines()
    assert (health, uid, gid) == ("ready", user, group)
    assert {"index.db", "master.key", "watchword.db"} <= set(rest)
    assert "3" in rest
    assert "ended 0" in rest
    assert rest[-1] == "then 1"


def serving() -> str:
    """Shell: start the image's command in the background, and wait until its health check says `ready`."""
    serve = shlex.join([*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))])
    check = shlex.join(json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2]))
    return f"""
        cd {instruction("WORKDIR")}
        {serve} >/tmp/out 2>&1 &
        tries=0
        until {check} 2>/dev/null; do
            tries=$((tries + 1)); [ $tries -lt 100 ] && kill -0 $! || {{ cat /tmp/out; exit 1; }}
        done
    """


def image_environment() -> dict[str, str]:
    env = dict(item.split("=", 1) for item in shlex.split(instruction("ENV")))
    return env | {"PATH": env["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")}


def run_contained(command: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    with no_disk_in_use():
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **env}
        )


@dataclass
class Pod:
    """A pod as the chart describes it and as the kubelet starts it: user, groups, environment and mounts."""

    made: dict[str, Manifest]
    environment: Path
    folder: Path
    secret: dict[str, bytes]

    def __post_init__(self) -> None:
        spec = pod_of(self.made)
        self.user, self.group = spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]
        self.data, self.root = self.folder / "data", self.folder / "root"
        self.data.mkdir()
        self.root.mkdir()
        self.mounts: list[str] = []
        places = {one["name"]: one["mountPath"] for one in container_of(self.made)["volumeMounts"]}
        for volume in spec["volumes"]:
            if "secret" in volume:
                files, mode = self.secret, volume["secret"]["defaultMode"]
            elif "configMap" in volume:
                texts = self.made["ConfigMap"]["data"].items()
                files, mode = {name: text.encode() for name, text in texts}, volume["configMap"]["defaultMode"]
            else:
                continue
            mount_files(self.folder / volume["name"], files, mode, self.group)
            self.mounts.append(f"{self.folder / volume['name']}:{places[volume['name']]}")

    def run(self, act: str) -> list[str]:
        """Start the container, wait for its probes, act in it and stop it; the lines that were printed."""
        mount_volume(self.data, self.group)
        container = container_of(self.made)
        http, metrics = (port["containerPort"] for port in container["ports"])
        paths = [container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        script = f"""
            {serving()}
            for path in {shlex.join(paths)}; do curl -sSf -o /dev/null http://127.0.0.1:{http}$path; done
            curl -sSf http://127.0.0.1:{metrics}/metrics | grep -q '^watchword_store_reachable 1'
            {act}
            kill $!; wait $!; echo "ended $?"
        """
        env = image_environment() | SERVICE_LINKS | variables_of(self.made)
        command = [
            *NAMESPACES, str(self.root), str(self.environment), str(self.data), str(self.user), str(self.user),
            "env", "-i", *(f"{name}={value}" for name, value in env.items()), "sh", "-ec", script,
        ]  # fmt: skip
        done = run_contained(command, MORE_GROUPS=str(self.group), MOUNTS="\n".join(self.mounts))
        assert done.returncode == 0, done.stdout + done.stderr
        first, *lines, last = done.stdout.splitlines()
        assert (first, last) == ("ready", "ended 0")
        return lines


def mount_files(folder: Path, files: dict[str, bytes], mode: int, group: int) -> None:
    """As the kubelet mounts a Secret or a ConfigMap: links to files of root that the pod's group may read."""
    written = folder / "..2026_01_01_00_00_00.1"
    written.mkdir(parents=True)
    (folder / "..data").symlink_to(written.name)
    for name, content in files.items():
        (written / name).write_bytes(content)
        (folder / name).symlink_to(f"..data/{name}")
        os.chown(written / name, 0, group)
        (written / name).chmod(mode)
    for one, folder_mode in ((folder, 0o3777), (written, 0o2755)):
        os.chown(one, 0, group)
        one.chmod(folder_mode)


def mount_volume(folder: Path, group: int) -> None:
    """As the kubelet does for `fsGroup` at the start of a pod: the group owns all, and may read and write it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, group, follow_symlinks=False)
        path.chmod(stat.S_IMODE(path.lstat().st_mode) | (0o2770 if path.is_dir() else 0o660))


SERVICE_LINKS = {
    "WATCHWORD_SERVICE_HOST": "10.96.0.7",
    "WATCHWORD_SERVICE_PORT_HTTP": "8080",
    "WATCHWORD_PORT": "tcp://10.96.0.7:8080",
    "WATCHWORD_PORT_8080_TCP": "tcp://10.96.0.7:8080",
    "WATCHWORD_PORT_8080_TCP_ADDR": "10.96.0.7",
}
"""What the kubelet sets for a service named `watchword` where service links are on."""


def test_pod_of_the_chart_starts_stops_and_starts_again(environment: Path, tmp_path: Path) -> None:
    need_root("a root of its own is made of mounts")
    need_program("ip", "iproute2")
    need_program("curl", "curl")
    policies, key = tmp_path / "policies.yaml", tmp_path / "master.key"
    policies.write_text(
        f"policies:\n  - {{id: own, name: Own, privileges: [{GENERATE}], actors: {{allUsers: true}}}}\n"
    )
    assert watchword("key", "new-master", str(key)).returncode == 0
    made = rendered("--set", "secret.name=watchword,user=20001", "--set-file", f"policyFile={policies}")
    pod = Pod(made, environment, tmp_path, {"master.key": key.read_bytes()})
    (token,) = pod.run("watchword token create --local --name first")
    assert (pod.data / "watchword.db").stat().st_uid == pod.user
    assert not (pod.data / "master.key").exists()  # the mounted one is used
    verify = f"curl -sS -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' http://127.0.0.1:8080/auth"
    assert pod.run(f"{verify}; echo; grep -c /run/watchword/policies.yaml /tmp/out") == ["204", "1"]
