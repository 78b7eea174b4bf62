"""A Watchword whose schema is one version ahead."""

import shutil
from pathlib import Path

import watchword as package
from watchword.database.migrations import latest

NEWER = latest("sqlite") + 1


def newer_watchword(folder: Path) -> dict[str, str]:
    """Make it; returns the environment that runs it."""
    shutil.copytree(Path(package.__file__).parent, folder / "watchword")
    migration = folder / "watchword/database/schema" / f"{NEWER:04}_ahead.sql"
    migration.write_text("ALTER TABLE policies ADD COLUMN ahead text;")
    return {"PYTHONPATH": str(folder)}
