"""The packages: reproducible, complete, and they run in an empty environment."""

import configparser
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.clients import client_env
from tests.support.deployed import make_packages
from tests.support.pages import ROOT, blocks, run_blocks
from tests.support.server import ADMIN, Server
from watchword import __version__
from watchword.__main__ import EXTRA
from watchword.cli import cli

SOURCE = ROOT / "src/watchword"


@dataclass(frozen=True)
class Packages:
    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(*make_packages(tmp_path_factory.mktemp("dist")))


@dataclass(frozen=True)
class PipxInstallation:
    """An installation by pipx: the command and its own environment."""

    bin: Path
    environment: Path


def _pins() -> list[str]:
    return re.findall(r"^[\w.\[\]-]+==\S+", (ROOT / "requirements/run.lock").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def installed(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> PipxInstallation:
    """Install with pipx in the locked versions. The hashes are left out: the new wheel has none in the lock."""
    folder = tmp_path_factory.mktemp("pipx")
    (folder / "constraints.txt").write_text("\n".join(_pins()))
    home = PipxInstallation(folder / "bin", folder / "home/venvs/watchword")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WATCHWORD_", "PYTHON", "PIPX"))}
    path = f"{Path(sys.executable).parent}:{clean['PATH']}"  # uv is here; it takes a tenth of pip's time
    done = subprocess.run(
        [
            client_env("packages") / "bin/pipx", "install", f"{packages.wheel}[server]", "--python", sys.executable,
            "--backend", "uv", "--pip-args", f"--constraint {folder / 'constraints.txt'}",
        ],
        env=clean | {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(home.bin), "PATH": path},
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return home


class InstalledServer(Server):
    """A server run by the installed command instead of the sources."""

    program: Path

    @property
    def command(self) -> list[str]:
        return ["env", "--chdir", str(self.folder), str(self.program), "serve", "--port", str(self.port)]


@pytest.fixture
def clone(installed: PipxInstallation, tmp_path: Path) -> Iterator[InstalledServer]:
    """Serve in an empty folder with `.venv`, as the README says; here `.venv` is the installed environment."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / ".venv").symlink_to(installed.environment)
    server = InstalledServer(folder)
    server.program = installed.bin / "watchword"
    with server:
        yield server


def test_packages_are_reproducible(packages: Packages, tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    for name in ("deploy", "requirements", "scripts", "src"):
        shutil.copytree(ROOT / name, project / name)
    for name in ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "pyproject.toml"):
        shutil.copyfile(ROOT / name, project / name)
    for name in (".venv", ".clients"):
        (project / name).symlink_to(ROOT / name)
    with tarfile.open(packages.source) as archive:
        moment = archive.getmembers()[0].mtime
    os.utime(project / "src/watchword/app/wiring.py", (0, 0))
    wheel, source = make_packages(tmp_path / "dist", project, SOURCE_DATE_EPOCH=str(int(moment)))
    assert wheel.read_bytes() == packages.wheel.read_bytes()
    assert source.read_bytes() == packages.source.read_bytes()


def test_wheel_has_exactly_the_files_of_the_package(packages: Packages) -> None:
    ours = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(packages.wheel) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert {
        "watchword/py.typed",
        "watchword/http/graphql/base.graphql",
        "watchword/tokens/schema.graphql",
    } <= packed
    assert any(name.endswith(".sql") for name in packed)


def test_source_distribution_has_sources_and_deployment_files(packages: Packages) -> None:
    with tarfile.open(packages.source) as archive:
        named = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    with zipfile.ZipFile(packages.wheel) as wheel:
        packed = {f"src/{name}" for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed <= named
    files = {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "requirements/run.lock"}
    assert files | {str(path.relative_to(ROOT)) for path in ROOT.glob("deploy/**/*") if path.is_file()} <= named


def test_wheel_has_complete_metadata(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        folder = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
        told = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
        entries = configparser.ConfigParser()
        entries.read_string(wheel.read(f"{folder}/entry_points.txt").decode())
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("watchword", __version__, ">=3.11")
    assert (told["License-Expression"], told["Description-Content-Type"]) == ("Apache-2.0", "text/markdown")
    assert told["Summary"]
    assert told["Keywords"]
    needed = told.get_all("Requires-Dist") or []
    assert [line for line in needed if "extra ==" not in line] == ["httpx<0.29,>=0.28"]
    assert told.get_all("Provides-Extra") == ["server"]
    assert "Typing :: Typed" in (told.get_all("Classifier") or [])
    assert told.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert dict(entries["console_scripts"]) == {"watchword": "watchword.__main__:main"}


@pytest.fixture(scope="module")
def client_only(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies without extras, in the locked versions."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "constraints.txt").write_text("\n".join(_pins()))
    uv, environment = Path(sys.executable).with_name("uv"), folder / "environment"
    install = f"{uv} pip install --quiet --python {environment} --constraint {folder / 'constraints.txt'}"
    for command in (f"{uv} venv --quiet --python {sys.executable} {environment}", f"{install} {packages.wheel}"):
        done = subprocess.run(command.split(), capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return environment


def test_client_depends_only_on_httpx(client_only: Path, server: Server, tmp_path: Path) -> None:
    listed = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    code = (
        "import asyncio, sys; from watchword.client import AsyncClient, Client; import watchword.client.middleware\n"
        "async def ask():\n"
        "    async with AsyncClient(sys.argv[1], actor=sys.argv[2]) as client: return (await client.me()).urn\n"
        "with Client(sys.argv[1], actor=sys.argv[2]) as client:\n"
        "    print(client.me().urn, client.get_server_info().version)\n"
        "print(asyncio.run(ask()))"
    )

    def python(*words: str) -> str:
        command = [str(client_only / "bin/python"), "-c", *words]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    of_httpx = {"anyio", "certifi", "h11", "httpcore", "httpx", "idna", "typing_extensions", "watchword"}
    assert set(python(listed).split()) <= of_httpx
    assert python(code, server.url, ADMIN) == f"{ADMIN} {__version__}\n{ADMIN}\n"


def test_command_without_server_packages_says_what_to_install(client_only: Path, tmp_path: Path) -> None:
    said = _needs_extra(client_only, "whoami", folder=tmp_path)
    assert re.search(r": aiosmtplib, .*click, .*yaml\. In the folder .*, run: pip install '\.\[server\]'\n$", said)


def test_every_command_without_server_packages_says_so_beside_click(
    client_only: Path, packages: Packages, tmp_path: Path
) -> None:
    """Packages that bring click, rich and PyYAML are common; the commands must not fail at the next import."""
    shutil.copytree(client_only, tmp_path / "environment", symlinks=True)
    environment = tmp_path / "environment"
    brought = [line for line in _pins() if re.match(r"(click|rich|pyyaml|markdown-it-py|mdurl|pygments)==", line)]
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", environment / "bin/python", *brought]
    subprocess.run([str(word) for word in install], timeout=280, check=True)
    commands = [[name] for name in sorted(cli.commands)]
    for words in (["--help"], ["--version"], ["policy", "apply", "x.yaml", "--dry-run"], ["token", "list"], *commands):
        said = _needs_extra(environment, *words, folder=tmp_path)
        assert "asyncpg" in said
        assert "click" not in said


def _needs_extra(environment: Path, *words: str, folder: Path) -> str:
    """What the command says, in one line and without a traceback."""
    # Not the script: its first line names the folder that was copied.
    command = [str(environment / "bin/python"), "-m", "watchword", *words]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), ran.stderr
    assert ran.stderr.startswith("watchword: The command line needs the extra 'server', of which these packages are ")
    return ran.stderr


def test_command_knows_every_package_of_the_extra() -> None:
    """`__main__` names them by module, because reading the metadata at each start takes longer."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    named = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in extra}  # type: ignore[index]
    found = packages_distributions()
    assert {found[module][0].lower().replace("_", "-") for module in EXTRA} == named


def test_installed_command_uses_only_its_own_environment(installed: PipxInstallation, tmp_path: Path) -> None:
    asked = "import watchword, importlib.util as u; print(watchword.__file__, u.find_spec('pytest'))"
    ran = subprocess.run(
        [installed.environment / "bin/python", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    where, _, other = ran.stdout.strip().rpartition(" ")
    assert Path(where).is_relative_to(installed.environment)
    assert other == "None"
    said = subprocess.run([installed.bin / "watchword", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"watchword, version {__version__}\n"


def test_readme_blocks_work_with_the_installed_wheel(clone: InstalledServer) -> None:
    readme = ROOT / "README.md"
    assert '"$PWD/.venv/bin:$PATH"' in blocks(readme)[0].code
    for block, output in run_blocks(readme, clone):
        if block.shown is not None:
            assert block.prints(output), f"{block.code}\nshows:\n{block.shown}\nbut printed:\n{output}"
    assert (clone.folder / "watchword-data/watchword.db").is_file()
