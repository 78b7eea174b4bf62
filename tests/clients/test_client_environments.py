"""`scripts/client-env` creates an environment once, and again only when its lock changes."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.clients import client_env
from tests.support.pages import ROOT
from tests.support.waiting import SECONDS

SMALL = "six"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the script and a lock of one small package."""
    client_env("datahub")  # skips if it cannot be installed
    (tmp_path / "scripts").mkdir()
    (tmp_path / "requirements").mkdir()
    shutil.copy(ROOT / "scripts/client-env", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    pinned = re.search(
        rf"^{SMALL}==.*\n(?:    --hash.*\n)+", (ROOT / "requirements/clients-datahub.lock").read_text(), re.MULTILINE
    )
    assert pinned is not None
    (tmp_path / "requirements/clients-small.lock").write_text(pinned[0])
    return tmp_path


def make(project: Path, name: str = "small") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, project / "scripts/client-env", name],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def made(project: Path) -> Path:
    done = make(project)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_environment_matches_its_lock(project: Path) -> None:
    asked = [str(made(project) / "bin/python"), "-c", f"import {SMALL}; import hypothesis"]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert "No module named 'hypothesis'" in ran.stderr


def test_environment_is_rebuilt_only_when_its_lock_changes(project: Path) -> None:
    left = made(project) / "left"
    left.touch()
    made(project)
    assert left.exists()
    with (project / "requirements/clients-small.lock").open("a") as lock:
        lock.write("# changed\n")
    made(project)
    assert not left.exists()


def test_several_at_once_make_it_once(project: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = {str(folder) for folder in pool.map(lambda _: made(project), range(4))}
    assert len(folders) == 1
    assert (Path(folders.pop()) / "bin/python").exists()


def test_package_whose_hash_is_not_in_the_lock_is_rejected_and_nothing_counts_as_made(project: Path) -> None:
    lock = project / "requirements/clients-small.lock"
    lock.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, lock.read_text()))
    for _ in range(2):
        refused = make(project)
        assert refused.returncode == 1
        assert "could not make the environment" in refused.stderr


def test_unknown_name_is_answered_with_the_known_ones(project: Path) -> None:
    refused = make(project, "nobody")
    assert refused.returncode == 1
    assert refused.stderr == "usage: scripts/client-env small|node|biome\n"
