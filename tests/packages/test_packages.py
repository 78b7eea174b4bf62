"""The packages: reproducible, complete, and each extra runs what it promises in an environment of its own."""

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
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.clients import client_env
from tests.support.deployed import environment_of, make_packages
from tests.support.interpreters import interpreter
from tests.support.pages import ROOT, blocks, run_blocks
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, Server
from watchword import __version__
from watchword.basics.extras import EXTRAS
from watchword.cli import cli

SOURCE = ROOT / "src/watchword"
CONSUMER = ROOT / "tests/packages/consumer.py"
OF_CLIENT = {"anyio", "certifi", "h11", "httpcore", "httpx", "idna", "typing-extensions", "watchword"}
OF_COMMANDS = {"click", "cronsim", "markdown-it-py", "mdurl", "pygments", "pyyaml", "rich"}
UV = Path(sys.executable).with_name("uv")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


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
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked versions. The hashes are left out: the new wheel has none in the lock."""
    file = tmp_path_factory.mktemp("locked") / "constraints.txt"
    file.write_text("\n".join(_pins()))
    return file


@pytest.fixture(scope="module")
def commands(packages: Packages, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> PipxInstallation:
    """The command line alone, installed with pipx."""
    folder = tmp_path_factory.mktemp("pipx")
    home = PipxInstallation(folder / "bin", folder / "home/venvs/watchword")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WATCHWORD_", "PYTHON", "PIPX"))}
    path = f"{UV.parent}:{clean['PATH']}"  # uv takes a tenth of pip's time
    done = subprocess.run(
        [
            client_env("packages") / "bin/pipx", "install", f"{packages.wheel}[cli]", "--python", sys.executable,
            "--backend", "uv", "--pip-args", f"--constraint {constraints}",
        ],
        env=clean | {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(home.bin), "PATH": path},
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return home


@pytest.fixture(scope="module")
def service(packages: Packages, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the extra `server`."""
    return _environment(tmp_path_factory.mktemp("server"), f"{packages.wheel}[server]", constraints)


@pytest.fixture(scope="module")
def client_only(packages: Packages, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the wheel without extras."""
    return _environment(tmp_path_factory.mktemp("client"), str(packages.wheel), constraints)


def _environment(folder: Path, wanted: str, constraints: Path) -> Path:
    made = folder / "environment"
    for command in (
        f"{UV} venv --quiet --no-project --python {sys.executable} {made}",
        f"{UV} pip install --quiet --python {made} --constraint {constraints} {wanted}",
    ):
        done = subprocess.run(command.split(), capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return made


class InstalledServer(Server):
    """A server run by the installed command instead of the sources."""

    program: Path

    @property
    def command(self) -> list[str]:
        return ["env", "--chdir", str(self.folder), str(self.program), "serve", "--port", str(self.port)]


@contextmanager
def _serving(folder: Path, service: Path, commands: Path) -> Iterator[InstalledServer]:
    """Serve in an empty folder with `.venv`, as the README says; here `.venv` is an installed environment."""
    folder.mkdir()
    (folder / ".venv").symlink_to(commands)
    server = InstalledServer(folder)
    server.program = service / "bin/watchword"
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
    assert told.get_all("Provides-Extra") == ["cli", "server"]
    classifiers = set(told.get_all("Classifier") or [])
    assert {"Typing :: Typed", *(f"Programming Language :: Python :: {version}" for version in VERSIONS)} <= classifiers
    assert told.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert dict(entries["console_scripts"]) == {"watchword": "watchword.__main__:main"}


def test_client_depends_only_on_httpx(client_only: Path, server: Server, tmp_path: Path) -> None:
    assert _distributions(client_only) <= OF_CLIENT
    command = [str(client_only / "bin/python"), str(CONSUMER), server.url, ADMIN]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{ADMIN} {__version__}\nurn:li:corpuser:consumer\n401 VerifyTokens\n"


def _distributions(environment: Path) -> set[str]:
    files = environment.glob("lib/python3*/site-packages/*.dist-info/METADATA")
    return {email.message_from_bytes(file.read_bytes())["Name"].lower().replace("_", "-") for file in files}


def test_command_line_is_installed_without_packages_of_the_server(commands: PipxInstallation, tmp_path: Path) -> None:
    assert _distributions(commands.environment) - {"pip"} <= OF_CLIENT | OF_COMMANDS
    asked = "import watchword; print(watchword.__file__)"
    where = subprocess.run(
        [commands.environment / "bin/python", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert Path(where).is_relative_to(commands.environment)
    said = subprocess.run([commands.bin / "watchword", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"watchword, version {__version__}\n"


def test_every_command_of_the_command_line_alone_has_its_help(commands: PipxInstallation, tmp_path: Path) -> None:
    code = (
        "import click\n"
        "from watchword.cli import cli\n"
        "def show(command, context):\n"
        "    print(command.get_help(context).split()[0])\n"
        "    for name in command.list_commands(context) if isinstance(command, click.Group) else ():\n"
        "        inner = command.get_command(context, name)\n"
        "        show(inner, click.Context(inner, context, name))\n"
        "show(cli, click.Context(cli, info_name='watchword'))"
    )
    asked = [str(commands.environment / "bin/python"), "-c", code]
    ran = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("Usage:") > 50


@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("doctor",),
        ("db", "migrate"),
        ("index", "load", "--demo"),
        ("token", "create", "--local", "--name", "first"),
        ("import", "datahub", "--from", "postgresql://datahub@127.0.0.1:1/datahub"),
    ],
    ids=" ".join,
)
def test_command_of_this_machine_without_server_packages_says_what_to_install(
    commands: PipxInstallation, tmp_path: Path, words: tuple[str, ...]
) -> None:
    said = _needs_extra(commands.environment, *words, folder=tmp_path, extra="server")
    assert re.search(r": aiosmtplib, .*structlog\. In the folder .*, run: pip install '\.\[server\]'\n$", said)
    assert list(tmp_path.iterdir()) == []


def test_command_with_the_client_alone_says_what_to_install(client_only: Path, tmp_path: Path) -> None:
    said = _needs_extra(client_only, "whoami", folder=tmp_path, extra="cli")
    assert re.search(r": click, cronsim, rich, yaml\. In the folder .*, run: pip install '\.\[cli\]'\n$", said)


def test_commands_need_all_packages_of_their_extra(client_only: Path, tmp_path: Path) -> None:
    """Other packages often bring click, rich and PyYAML; the commands must not fail at the next import."""
    shutil.copytree(client_only, tmp_path / "environment", symlinks=True)
    environment, folder = tmp_path / "environment", tmp_path / "folder"
    folder.mkdir()

    def bring(pins: list[str]) -> None:
        install = f"{UV} pip install --quiet --no-deps --python {environment / 'bin/python'}"
        subprocess.run([*install.split(), *pins], timeout=280, check=True)

    bring([line for line in _pins() if re.match(r"(click|rich|pyyaml|markdown-it-py|mdurl|pygments)==", line)])
    groups = [[name] for name in sorted(cli.commands)]
    for words in (["--help"], ["--version"], ["policy", "apply", "x.yaml"], ["token", "list"], *groups):
        said = _needs_extra(environment, *words, folder=folder, extra="cli")
        assert ": cronsim. " in said
    bring([line for line in _pins() if not line.startswith("pymysql==")])
    for words in (["db", "migrate"], ["serve"]):
        assert ": pymysql. " in _needs_extra(environment, *words, folder=folder, extra="server")
    assert list(folder.iterdir()) == []


def _needs_extra(environment: Path, *words: str, folder: Path, extra: str) -> str:
    """What the command says, in one line and without a traceback."""
    # Not the script: its first line names the folder that was copied.
    command = [str(environment / "bin/python"), "-m", "watchword", *words]
    ran = subprocess.run(
        command, cwd=folder, env=without_settings(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), ran.stderr
    what = {"cli": "The command line", "server": "This command"}[extra]
    assert ran.stderr.startswith(f"watchword: {what} needs the extra '{extra}', of which these packages are missing: ")
    return ran.stderr


def test_command_knows_every_package_of_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = packages_distributions()
    for extra, lines in extras.items():
        named = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in lines}  # type: ignore[index]
        assert {found[module][0].lower().replace("_", "-") for module in EXTRAS[extra]} == named
    assert list(extras) == list(EXTRAS)
    assert set(extras["cli"]) <= set(extras["server"])


def test_readme_blocks_work_with_an_installed_server_and_the_command_line_alone(
    service: Path, commands: PipxInstallation, tmp_path: Path
) -> None:
    with _serving(tmp_path / "clone", service, commands.environment) as server:
        _run_readme(server)
        assert (server.folder / "watchword-data/watchword.db").is_file()


def _run_readme(server: InstalledServer) -> None:
    readme = ROOT / "README.md"
    assert '"$PWD/.venv/bin:$PATH"' in blocks(readme)[0].code
    for block, output in run_blocks(readme, server):
        if block.shown is not None:
            assert block.prints(output), f"{block.code}\nshows:\n{block.shown}\nbut printed:\n{output}"


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_readme_blocks_work_with_every_python(packages: Packages, version: str, tmp_path: Path) -> None:
    """The locked packages by their hashes, and no module warns when it is compiled."""
    environment = environment_of(packages.wheel, tmp_path / "environment", interpreter(version, tmp_path))
    (modules,) = environment.glob("lib/python3*/site-packages/watchword")
    compiled = f"{environment / 'bin/python'} -W error -m compileall -q -f {modules}"
    subprocess.run(compiled.split(), check=True)
    with _serving(tmp_path / "clone", environment, environment) as server:
        _run_readme(server)


@pytest.mark.soak
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_accept_a_program_that_uses_the_client(client_only: Path, checker: str, tmp_path: Path) -> None:
    """Strictly, and with the installed client, as in the editor of its author."""
    shutil.copy(CONSUMER, tmp_path)
    if checker == "mypy":
        program, where = UV.with_name("mypy"), "--python-executable"
        words = ["--strict", f"--cache-dir={tmp_path / 'cache'}", "--config-file=", CONSUMER.name]
    else:
        (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
        program, where, words = client_env("pyright") / "bin/pyright", "--pythonpath", []
    ran = subprocess.run(
        [program, where, client_only / "bin/python", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
