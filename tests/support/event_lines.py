"""The lines of an event stream."""

import json
from pathlib import Path
from typing import Any


def parsed(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The events, and the lines that were cut off."""
    good, cut = [], []
    for line in text.splitlines():
        try:
            good.append(json.loads(line))
        except ValueError:
            cut.append(line)
    return good, cut


def numbers(*files: Path) -> list[int]:
    """The numbers of the events in these files, in their order."""
    return [one["event"]["sequence"] for file in files if file.exists() for one in parsed(file.read_text())[0]]
