"""The image of the Containerfile, on a base of Debian's packages instead of a registry's image: built and run."""

import configparser
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.disks import no_disk_in_use
from tests.support.interpreters import OLD_LISTS, mirror
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.system import need_program, need_root
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.soak]

BASE, IMAGE, CONTAINER = "localhost/python", "localhost/watchword", "watchword"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
"""Those that podman sets are more than a container may have on some machines."""


@dataclass(frozen=True)
class Podman:
    """The real one, with images, volumes and containers of its own."""

    folder: Path

    def __call__(self, *words: str | Path) -> str:
        places = (f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'run'}", "--storage-driver=vfs")
        how = ("--cgroup-manager=cgroupfs", f"--runtime={need_program('runc', 'runc')}")
        command = [need_program("podman", "podman"), *places, *how, *words]
        with no_disk_in_use():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def build(self) -> None:
        unpack = need_program("mmdebstrap", "mmdebstrap")
        files, settings = self.folder / "base.tar", self.folder / "pip.conf"
        words = ["--variant=minbase", OLD_LISTS, f"--include={PACKAGES}", "bookworm", str(files), *mirror()]
        done = subprocess.run([unpack, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self("import", files, BASE)
        files.unlink()
        settings.write_text(pip_settings())
        self(
            "build", "--isolation=chroot", "--network=host", *LIMITS, "--layers=false", "--format=docker",
            "--pull=never", f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--volume={settings}:/etc/pip.conf:ro",
            f"--build-arg=BASE={BASE}", f"--tag={IMAGE}", ROOT,
        )  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[str]:
        """As the page on deployment runs it; yields the address."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        # The tests' machine need not be able to give it a network of its own, or timers.
        here = ("--network=host", f"--env=WATCHWORD_PORT={port}", *LIMITS, "--no-healthcheck", "--pull=never")
        rights = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
        self("run", "--detach", f"--name={CONTAINER}", *here, *rights, "--volume=watchword-data:/data", IMAGE)
        try:
            until(lambda: is_healthy(url) or not self.is_running(), f"{url} is healthy")
            assert self.is_running(), self("logs", CONTAINER)
            yield url
            self("stop", "--time=60", CONTAINER)
            assert self("inspect", "--format={{.State.ExitCode}}", CONTAINER) == "0"
        finally:
            self("rm", "--force", CONTAINER)

    def is_running(self) -> bool:
        return self("inspect", "--format={{.State.Running}}", CONTAINER) == "true"

    def run(self, *command: str) -> list[str]:
        """The lines that a command in the container prints."""
        return self("exec", CONTAINER, *command).splitlines()


def pip_settings() -> str:
    """Those of this machine: where its index is and what certificates it has is not the Containerfile's business."""
    files = configparser.ConfigParser(interpolation=None)
    files.read(["/etc/pip.conf", Path.home() / ".config/pip/pip.conf"])
    settings = {"retries": "10", "timeout": "180"}
    for name in ("index-url", "extra-index-url", "trusted-host"):
        variable = f"PIP_{name.upper().replace('-', '_')}"
        if value := os.environ.get(variable) or files.get("global", name, fallback=""):
            settings[name] = value
    settings["cert"] = str(CERTIFICATES)
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


def is_healthy(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


def status_of(url: str, token: str) -> int:
    return httpx.get(f"{url}/auth", headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    need_root("makes a base of Debian's packages")
    with tempfile.TemporaryDirectory(prefix="watchword-podman-") as folder:
        engine = Podman(Path(folder))
        engine.build()
        yield engine


def test_container_starts_again_with_its_volume_and_without_rights(podman: Podman) -> None:
    with podman.running() as url:
        assert podman.run("watchword", "health") == ["ready"]
        (token,) = podman.run("watchword", "token", "create", "--local", "--name", "first")
        assert status_of(url, token) == 204
        assert podman.run("stat", "--format=%u %g %a", "/data", "/data/master.key") == [
            "10001 10001 700", "10001 10001 600"
        ]  # fmt: skip
        status = dict(line.split(":\t", 1) for line in podman.run("cat", "/proc/1/status"))
        assert status["Uid"].split() == ["10001"] * 4
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert status["NoNewPrivs"] == "1"
        options = {line.split()[1]: line.split()[3].split(",") for line in podman.run("cat", "/proc/mounts")}
        assert (options["/"][0], options["/data"][0]) == ("ro", "rw")
    with podman.running() as url:
        assert status_of(url, token) == 204
