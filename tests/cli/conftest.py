import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.support.postgres import Address, Home, home
from tests.support.story import Story


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
def lived(tmp_path_factory: pytest.TempPathFactory) -> Story:
    story = Story(tmp_path_factory.mktemp("story") / "s")
    story.live_through()
    return story


@pytest.fixture(scope="session")
def lived_in_database(postgres: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    with home(postgres, folder) as where:
        story = Story(folder / "s", where)
        story.live_through()
        yield story


@pytest.fixture
def story(lived: Story, tmp_path: Path) -> Iterator[Story]:
    """Told, and stopped: a copy of a test's own."""
    yield from _used(lived.copied(tmp_path / "s"))


@pytest.fixture
def database_story(lived_in_database: Story, database: Home, tmp_path: Path) -> Iterator[Story]:
    """The same, in PostgreSQL."""
    yield from _used(lived_in_database.copied_to(tmp_path / "s", database))


@pytest.fixture(params=["story", "database_story"])
def any_story(request: pytest.FixtureRequest) -> Story:
    """On each store."""
    told: Story = request.getfixturevalue(request.param)
    return told


def _used(story: Story) -> Iterator[Story]:
    yield story
    story.server.stop()
    story.server.http.close()
