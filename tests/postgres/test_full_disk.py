"""The database's disk is full: writes get 503, verification works, and everything recovers."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.disks import small_disk
from tests.support.postgres import Address, Home, home, runs_as
from tests.support.server import ADMIN, CREATE, Server
from tests.support.waiting import until

FULL = "The store's disk is full. Nothing was changed."


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk owned by the database's user."""
    folder = Path(tempfile.mkdtemp(prefix="watchword-disk-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        with small_disk(folder / "disk", 16) as mounted:
            if runs_as():
                shutil.chown(mounted, runs_as())
            yield mounted
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def store_on_small_disk(postgres: Address, disk: Path, tmp_path: Path) -> Iterator[Home]:
    """A store whose tables are on that disk."""
    with home(postgres, tmp_path) as made:
        space, role = f"space_{made.schema}", f"role_{made.schema}"
        postgres.ask(f"CREATE ROLE {role} LOGIN SUPERUSER")
        postgres.ask(f"CREATE TABLESPACE {space} OWNER {role} LOCATION '{disk}'")
        postgres.ask(f"ALTER ROLE {role} SET default_tablespace = {space}")
        made.url = postgres.url(user=role)
        try:
            yield made
        finally:
            made.drop()
            postgres.ask(f"DROP TABLESPACE {space}")
            postgres.ask(f"DROP ROLE {role}")


def allow_row_changes_only(postgres: Address, home: Home) -> None:
    """The role can no longer create tables on that disk."""
    postgres.ask(f"ALTER TABLESPACE space_{home.schema} OWNER TO CURRENT_USER")
    postgres.ask(f"ALTER ROLE role_{home.schema} NOSUPERUSER")


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_full_disk_rejects_writes_until_there_is_space(
    postgres: Address, store_on_small_disk: Home, disk: Path, tmp_path: Path
) -> None:
    with Server(tmp_path / "server", "--local-mode", "on", env=store_on_small_disk.env) as server:
        token = server.create(ADMIN)["accessToken"]
        allow_row_changes_only(postgres, store_on_small_disk)
        filler = fill(disk)
        wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x", "description": "y" * 1000}
        answers = []

        def is_rejected() -> bool:
            """Pages in use may have space for a few more rows."""
            answers.append(server.post(CREATE, {"input": wanted}, actor=ADMIN).json())
            return "errors" in answers[-1]

        until(is_rejected, "a create is refused")
        (error,) = answers[-1]["errors"]
        assert error["message"] == FULL
        assert (error["extensions"]["code"], error["extensions"]["reason"]) == (503, "store_unavailable")
        kept = store_on_small_disk.look("SELECT count(*) FROM tokens")[0][0]
        assert kept == len(answers)  # the first one and all but the rejected one

        assert server.verify(token).status_code == 204
        until(lambda: server.http.get("/health/ready").status_code == 503, "it is not ready")
        assert server.http.get("/health/ready").json()["parts"]["store"] == {"status": "unavailable", "message": FULL}
        assert server.http.get("/health/live").status_code == 200

        filler.unlink()
        until(lambda: server.http.get("/health/ready").status_code == 200, "it is ready again")
        assert not is_rejected()
        assert server.verify(answers[-1]["data"]["createAccessToken"]["accessToken"]).status_code == 204
        assert server.verify(token).status_code == 204
        assert "Traceback" not in server.err.read_text()
