"""The container files: linters accept them, and the service runs as they describe. There is no base image here to build
on. The test runs the service as the Containerfile says, on a read-only root, without a container engine.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clients import client_env
from tests.support.deployed import environment_of, make_packages
from tests.support.disks import no_disk_in_use
from tests.support.pages import ROOT
from tests.support.system import need_program, need_root
from tests.support.waiting import SECONDS
from watchword.settings import TABLE

CONTAINERFILE = ROOT / "Containerfile"
COMPOSE = ROOT / "compose.yaml"
CONTAIN = ROOT / "tests/support/contain.sh"


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


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def test_hadolint_accepts_the_containerfile() -> None:
    done = run_tool("hadolint", "--no-color", CONTAINERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_rejects_a_root_user(tmp_path: Path) -> None:
    worse = tmp_path / "Containerfile"
    worse.write_text(CONTAINERFILE.read_text().replace("USER 10001:10001", "USER root"))
    done = run_tool("hadolint", "--no-color", worse)
    assert done.returncode != 0
    assert "root" in done.stdout


def test_compose_file_matches_the_compose_schema(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = run_tool(*check, COMPOSE)
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


def test_third_party_images_require_a_digest() -> None:
    services = compose()["services"]
    named = [
        services["watchword"]["build"]["args"]["BASE"],
        *(services[name]["image"] for name in ("postgres", "opensearch")),
    ]
    assert all(re.fullmatch(r"\$\{[A-Z]+_IMAGE:\?Set it in \.env to .* by its digest; .*\}", one) for one in named), (
        named
    )
    lines = CONTAINERFILE.read_text().splitlines()
    assert "ARG BASE" in lines  # no default
    assert {line for line in lines if line.startswith("FROM")} == {"FROM ${BASE} AS build", "FROM ${BASE}"}
    (check,) = (line.removeprefix("RUN ") for line in lines if line.startswith("RUN case"))
    for base, code in (("python:3.11-slim-bookworm", 1), (f"python@sha256:{'0' * 64}", 0)):
        done = subprocess.run(["/bin/sh", "-c", check], env={"BASE": base}, check=False, capture_output=True)
        assert done.returncode == code


def test_compose_services_drop_privileges_and_wait_for_dependencies() -> None:
    services = compose()["services"]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
    ours = services.pop("watchword")
    assert ours["read_only"] is True
    assert ours["user"] == instruction("USER")
    assert all(port.startswith("127.0.0.1:") for port in ours["ports"])
    assert {name: one["condition"] for name, one in ours["depends_on"].items()} == dict.fromkeys(
        services, "service_healthy"
    )
    assert all("healthcheck" in service and "ports" not in service for service in services.values())
    assert all(service["networks"] == ["inside"] for service in services.values())


def test_compose_file_sets_known_settings_and_no_secrets() -> None:
    content = compose()
    ours = content["services"]["watchword"]
    secret = {setting.variable for setting in TABLE if setting.secret}
    known = {setting.variable for setting in TABLE} | {one.file_variable for one in TABLE if one.secret}
    assert set(ours["environment"]) <= known
    shown = {name: value for name, value in ours["environment"].items() if name in secret}
    assert not any("@" in value for value in shown.values())
    files = {value for value in ours["environment"].values() if value.startswith("/run/secrets/")}
    assert files == {f"/run/secrets/{name}" for name in ours["secrets"]}
    assert set(ours["secrets"]) <= set(content["secrets"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel, _ = make_packages(tmp_path_factory.mktemp("dist"))
    return environment_of(wheel, tmp_path_factory.mktemp("opt") / "watchword")


def test_service_runs_with_the_image_settings_on_a_read_only_root(environment: Path, tmp_path: Path) -> None:
    need_root("a root of its own is made of mounts")
    need_program("ip", "iproute2")
    user, _, group = instruction("USER").partition(":")
    assert json.loads(instruction("VOLUME")) == [instruction("WORKDIR")] == ["/data"]
    serve = shlex.join([*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))])
    check = shlex.join(json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2]))
    script = f"""
        cd {instruction("WORKDIR")}
        {serve} >/data/out 2>&1 &
        tries=0
        until {check} 2>/dev/null; do
            tries=$((tries + 1)); [ $tries -lt 100 ] || {{ cat /data/out; exit 1; }}
        done
        id -u; id -g; ls /data
        touch /x /usr/x /opt/watchword/x 2>&1 | grep -c 'Read-only file system'
        kill $!; wait $!; echo "ended $?"
        {check} 2>&1 || echo "then $?"
    """
    root, data = tmp_path / "root", tmp_path / "data"
    root.mkdir()
    data.mkdir(0o700)
    os.chown(data, int(user), int(group))
    env = dict(item.split("=", 1) for item in shlex.split(instruction("ENV")))
    env["PATH"] = env["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
    command = [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts",
        "sh", str(CONTAIN), str(root), str(environment), str(data), user, group,
        "env", "-i", *(f"{name}={value}" for name, value in env.items()), "sh", "-c", script,
    ]  # fmt: skip
    with no_disk_in_use():
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    health, uid, gid, *rest = done.stdout.splitlines()
    assert (health, uid, gid) == ("ready", user, group)
    assert {"index.db", "master.key", "watchword.db"} <= set(rest)
    assert "3" in rest
    assert "ended 0" in rest
    assert rest[-1] == "then 1"
