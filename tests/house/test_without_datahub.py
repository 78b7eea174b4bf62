"""DataHub is one room: without it, its command and the lines that list them, the service starts."""

import re
import shutil
from pathlib import Path

from tests.house.test_house import MODULES, SOURCE, imports, room_of
from tests.support.server import ADMIN, Server

LISTS = {"app/graphql_schema.py", "app/routes.py", "app/wiring.py", "cli/__init__.py"}
"""Where lines name it. The commands name their module as text."""
_LINE = re.compile(r'from watchword\.datahub|\s+datahub,$|    "import": \("datahub"')
_WORD = re.compile(r"(?<=\()DataHubEndpoints,(?=\))")


def without_datahub(folder: Path) -> Path:
    """A copy of the source, without the modules and without the lines and words that name them."""
    source = folder / "watchword"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(source / "datahub")
    (source / "cli/datahub.py").unlink()
    for file in LISTS:
        lines = (source / file).read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if not _LINE.match(line))
        (source / file).write_text(_WORD.sub("", text))
    return source


def test_only_the_lists_import_datahub() -> None:
    importers = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for name in imports(path)
        if room_of(name) == "datahub" or name == "watchword.cli.datahub"
    }
    assert {one for one in importers if not one.startswith("datahub/")} <= {*LISTS, "cli/datahub.py"}


def test_service_starts_without_datahub(tmp_path: Path) -> None:
    source = without_datahub(tmp_path / "source")
    with Server(tmp_path / "server", prefix=("env", f"PYTHONPATH={source.parent}")) as server:
        made = server.create(ADMIN)
        assert server.verify(made["accessToken"]).status_code == 204
        assert server.http.get("/openapi/operations/identity/user/urn").status_code == 404
        assert server.tokens()["total"] == 1
