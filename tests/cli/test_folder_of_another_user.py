"""Commands on a data folder of another user name that user."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import ADMIN, Server
from tests.support.system import need_program, need_root
from tests.support.waiting import SECONDS


@pytest.mark.parametrize(
    "words", [("key", "list"), ("token", "create", "--local", "--name", "x", "--actor", ADMIN)], ids=lambda w: w[0]
)
def test_folder_of_another_user_is_rejected_with_the_user_to_run_as(server: Server, words: tuple[str, ...]) -> None:
    with open_to_www_data(server) as folder:
        done = as_www_data(*words, "--data-dir", str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{folder} belongs to user root: run this as that user." in done.stderr


def test_folder_of_another_user_is_bad_beside_the_other_checks(server: Server) -> None:
    with open_to_www_data(server) as folder:
        done = as_www_data("doctor", "--json", "--data-dir", str(folder), "--port", str(server.port))
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    (trouble,) = (finding for finding in found if finding["level"] != "ok")
    assert (trouble["level"], trouble["about"]) == ("BAD", "data folder")
    assert f"{folder} belongs to user root" in trouble["what"]
    assert trouble["fix"] == "Run this as user root."
    assert {"settings", "policy file", "port", "exposure", "open files"} <= {finding["about"] for finding in found}


@contextmanager
def open_to_www_data(server: Server) -> Iterator[Path]:
    """The server's data folder, by a path that another user can follow."""
    need_root("acts as another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as above:
        Path(above).chmod(0o755)
        folder = Path(above) / "data"
        folder.mkdir(mode=0o700)
        for name in ("watchword.db", "master.key"):
            shutil.copy2(server.data_dir / name, folder / name)
        yield folder


def as_www_data(*words: str) -> subprocess.CompletedProcess[str]:
    runuser = need_program("runuser", "util-linux")
    command = [runuser, "-u", "www-data", "--", "env", "HOME=/tmp", sys.executable, "-m", "watchword", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd="/", check=False)
