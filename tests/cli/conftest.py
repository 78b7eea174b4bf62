from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.story import Story


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Story:
    story = Story(tmp_path_factory.mktemp("story") / "s")
    story.live_through()
    return story


@pytest.fixture
def story(lived: Story, tmp_path: Path) -> Iterator[Story]:
    """Told, and stopped: a copy of a test's own."""
    copy = lived.copied(tmp_path / "s")
    yield copy
    copy.server.stop()
    copy.server.http.close()
