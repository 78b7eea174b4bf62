"""The systemd unit: valid, sandboxed, and the service runs in it under a real systemd."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.deployed import DEPLOY, UNIT, environment_of, make_packages, systemd
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.postgres import Home
from tests.support.server import ADMIN, CREATE, REVOKE, watchword
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until, until_gone
from watchword.settings import TABLE, load

ACTOR = "X-Service-Actor"
EXPOSED_AT_MOST = 15
"""Of 100, as systemd counts. What stays open: the network, sockets and the root file system."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel, _ = make_packages(tmp_path_factory.mktemp("dist"))
    return environment_of(wheel, tmp_path_factory.mktemp("opt") / "watchword")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder of units with only ours in it."""
    folder = tmp_path / "units"
    folder.mkdir()
    shutil.copy(DEPLOY / UNIT, folder)
    return folder


def drop_in(units: Path, name: str, text: str) -> None:
    folder = units / f"{UNIT}.d"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def http(units: Path) -> Iterator[httpx.Client]:
    """A client for the service that the unit starts, on its own port."""
    port = free_port()
    log = units / "service.log"
    said = f"StandardOutput=append:{log}\nStandardError=append:{log}\n"
    drop_in(units, "port.conf", f"[Service]\nEnvironment=WATCHWORD_PORT={port}\n{said}")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client:
        yield client


def is_healthy(http: httpx.Client) -> bool:
    try:
        return http.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def await_healthy(http: httpx.Client, units: Path) -> None:
    try:
        until(lambda: is_healthy(http), "the service is healthy")
    except AssertionError:
        logs = [units / name for name in ("boot.log", "console.log", "service.log")]
        raise AssertionError("\n".join(log.read_text() for log in logs if log.exists())) from None


def processes(outer: psutil.Process) -> list[psutil.Process]:
    return [one for one in outer.children(recursive=True) if "/opt/watchword/bin" in " ".join(command_line(one))]


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # the process exited meanwhile
        return []


def test_systemd_accepts_the_unit_and_its_drop_in(units: Path, environment: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    drop_in(units, "postgresql.conf", (DEPLOY / f"{UNIT}.d/postgresql.conf").read_text())
    unit = units / UNIT
    unit.write_text(unit.read_text().replace("/opt/watchword", str(environment)))
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=strictly"))
    told = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False).stderr
    assert "strictly" in told


def test_unit_has_a_low_exposure_score(units: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    flags = ["--offline=true", f"--threshold={EXPOSED_AT_MOST}", "--no-pager"]
    done = subprocess.run([analyze, "security", *flags, units / UNIT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_tokens_are_created_and_revoked_in_the_sandbox(units: Path, http: httpx.Client, environment: Path) -> None:
    with systemd(units, environment) as machine:
        await_healthy(http, units)
        # Only a process of the service's own user may name an actor. Root may not.
        wanted = {"input": {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "t"}}
        refused = http.post("/api/graphql", json={"query": CREATE, "variables": wanted}, headers={ACTOR: ADMIN})
        assert refused.status_code == 401
        assert "a process of user root (uid 0); the server runs as" in refused.json()["errors"][0]["message"]
        user = processes(machine)[0].uids().real
        token = post_as_user(http, user, CREATE, wanted)["createAccessToken"]
        bearer = {"Authorization": f"Bearer {token['accessToken']}"}
        assert http.get("/auth", headers=bearer).status_code == 204
        assert post_as_user(http, user, REVOKE, {"id": token["metadata"]["id"]}) == {"revokeAccessToken": True}
        assert http.get("/auth", headers=bearer).status_code == 401
        running = processes(machine)
        assert len(running) >= 2  # the service and its worker; the index process comes and goes
        for process in running:
            with suppress(FileNotFoundError):  # the index process has gone
                text = Path(f"/proc/{process.pid}/status").read_text()
            status = dict(re.findall(r"^(\w+):\s*(.*)$", text, re.MULTILINE))
            assert (status["CapEff"], status["CapBnd"]) == ("0" * 16, "0" * 16)
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            assert status["Uid"].split()[0] != "0"
            assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)  # a core dump would contain tokens and keys


def test_systemd_restarts_a_killed_service(units: Path, http: httpx.Client, environment: Path) -> None:
    with systemd(units, environment) as machine:
        await_healthy(http, units)
        before = processes(machine)
        before[0].kill()
        until_gone(before)  # a worker outlives its parent process for a moment
        await_healthy(http, units)
        after = processes(machine)
        assert after
        assert not {one.pid for one in after} & {one.pid for one in before}


def test_drop_in_secrets_are_not_in_the_environment(
    units: Path, http: httpx.Client, environment: Path, database: Home
) -> None:
    folder = units / "etc"
    folder.mkdir(0o700)
    (folder / "database-url").write_text(database.url)
    shutil.copy(database.key_file, folder / "master.key")
    text = (DEPLOY / f"{UNIT}.d/postgresql.conf").read_text().replace("/etc/watchword/", f"{folder}/")
    drop_in(units, "postgresql.conf", f"{text}Environment=WATCHWORD_DATABASE_SCHEMA={database.schema}\n")
    with systemd(units, environment) as machine:
        await_healthy(http, units)
        made = watchword("token", "create", "--local", env=database.env)
        assert made.returncode == 0, made.stderr
        assert http.get("/auth", headers={"Authorization": f"Bearer {made.stdout.strip()}"}).status_code == 204
        seen = [Path(f"/proc/{process.pid}/environ").read_text() for process in processes(machine)]
        assert all("WATCHWORD_DATABASE_URL_FILE=" in one for one in seen)
        assert not any(database.url in one for one in seen)


def test_documented_systemd_run_command_works_beside_the_service(
    units: Path, http: httpx.Client, environment: Path
) -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    (line,) = re.findall(r"^systemd-run (.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    words = line.replace("\\\n", " ").split()
    properties = [word.removeprefix("--property=") for word in words if word.startswith("--property=")]
    assert properties
    command = " ".join(word for word in words if not word.startswith("--p") and word != "--wait")
    told = units / "told"
    again = "Restart=on-failure\nRestartSec=200ms\n"  # until the service has created the store
    heard = f"StandardOutput=truncate:{told}\nStandardError=null"
    own = "\n".join(["[Service]", "Type=oneshot", *properties, f"ExecStart={command}", heard])
    (units / "command.service").write_text(f"[Unit]\nDefaultDependencies=no\nStartLimitBurst=1000\n{own}\n{again}")
    drop_in(units, "command.conf", "[Unit]\nWants=command.service\n")
    with systemd(units, environment):
        await_healthy(http, units)
        until(lambda: told.exists() and told.read_text().endswith("\n"), "the command has told its token")
        assert http.get("/auth", headers={"Authorization": f"Bearer {told.read_text().strip()}"}).status_code == 204


def test_environment_example_has_valid_settings() -> None:
    text = (DEPLOY / "watchword.env.example").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    others = dict(re.findall(r"^#(\w+)=(.*)$", text, re.MULTILINE))
    assert load({}, given).public_url == given["WATCHWORD_PUBLIC_URL"]
    load({}, given | others)
    assert not {setting.variable for setting in TABLE if setting.secret} & set(given)


def post_as_user(http: httpx.Client, user: int, query: str, variables: object) -> Any:
    """Return the data of a response to a process of this user that sends the actor header."""
    words = ["-sS", "-H", f"{ACTOR}: {ADMIN}", "-H", "Content-Type: application/json", "-d", "@-"]
    done = subprocess.run(
        [need_program("curl", "curl"), *words, f"{http.base_url}/api/graphql"],
        input=json.dumps({"query": query, "variables": variables}),
        capture_output=True, text=True, timeout=SECONDS, check=True, user=user, cwd="/",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert "errors" not in answer, answer
    return answer["data"]
