import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.support.postgres import Address, Home, home
from tests.support.story import BackupHistory


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a migrated store, to be copied: copying is faster than commands."""
    folder = tmp_path_factory.mktemp("migrated") / "d"
    assert watchword("db", "migrate", "--data-dir", str(folder)).returncode == 0
    return folder


@pytest.fixture(scope="session")
def with_token(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a migrated store and a token."""
    folder = shutil.copytree(migrated, tmp_path_factory.mktemp("with_token") / "d")
    assert watchword("token", "create", "--local", "--data-dir", str(folder)).returncode == 0
    return folder


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> BackupHistory:
    story = BackupHistory(tmp_path_factory.mktemp("story") / "s")
    story.create()
    return story


@pytest.fixture(scope="session")
def lived_in_database(postgres: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackupHistory]:
    folder = tmp_path_factory.mktemp("story")
    with home(postgres, folder) as where:
        story = BackupHistory(folder / "s", where)
        story.create()
        yield story


@pytest.fixture
def story(lived: BackupHistory, tmp_path: Path) -> Iterator[BackupHistory]:
    """A copy for one test; its server is stopped."""
    yield from _used(lived.copied(tmp_path / "s"))


@pytest.fixture
def database_story(lived_in_database: BackupHistory, database: Home, tmp_path: Path) -> Iterator[BackupHistory]:
    """The same, in PostgreSQL."""
    yield from _used(lived_in_database.copied_to(tmp_path / "s", database))


@pytest.fixture(params=["story", "database_story"])
def any_story(request: pytest.FixtureRequest) -> BackupHistory:
    """On each store."""
    history: BackupHistory = request.getfixturevalue(request.param)
    return history


def _used(story: BackupHistory) -> Iterator[BackupHistory]:
    yield story
    story.server.stop()
    story.server.http.close()
