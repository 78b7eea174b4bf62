"""`python -m bench publish`: the last results, copied to where the documentation shows them, and its tables made from
them.

What is published stays until the bench of that name is published again; each says of which day it is.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
CHARTS = PAGE.parent / "charts"
NUMBERS = CHARTS / "numbers.md"
BEGIN, END = "<!-- made by make bench-publish -->\n", "<!-- so far -->"
FORM = {"name", "title", "at", "rows", "laws"}


def main() -> None:
    found = [file for file in sorted(RESULTS.glob("*.json")) if file.with_suffix(".svg").exists()]
    if not found:
        raise SystemExit(f"There is nothing to publish in {RESULTS.relative_to(ROOT)}: run a bench first.")
    CHARTS.mkdir(parents=True, exist_ok=True)
    for file in found:
        for one in (file, file.with_suffix(".svg")):
            shutil.copyfile(one, CHARTS / one.name)
        print(f"{(CHARTS / file.name).relative_to(ROOT)} and its chart")
    runs = published()
    PAGE.write_text(with_laws(PAGE.read_text(), runs))
    NUMBERS.write_text(numbers(runs))
    print(f"{PAGE.relative_to(ROOT)} and {NUMBERS.relative_to(ROOT)}: their tables")


def published() -> list[Any]:
    """What is there, in the common form: the order is that of the page."""
    order = re.findall(r"\(charts/(\w+)\.svg\)", PAGE.read_text())
    kept = [json.loads(file.read_text()) for file in sorted(CHARTS.glob("*.json"))]
    known = [one for one in kept if isinstance(one, dict) and one.keys() >= FORM]
    return sorted(known, key=lambda one: order.index(one["name"]) if one["name"] in order else len(order))


def with_laws(page: str, runs: Sequence[Any]) -> str:
    """The page with its table of laws as these runs have it."""
    lines = ["| ratio, in one run | measured | by the processor | bar | |", "|---|---|---|---|---|"]
    for run in runs:
        for law in run["laws"]:
            cpu = f"{median(law['cpu']):.2f}" if law["cpu"] else ""
            holds = {True: "holds", False: "**fails**", None: ""}[law["holds"]]
            cells = (law["name"], f"{law['value']:.2f}{law['unit']}", cpu, _bar(law), holds)
            lines.append(f"| {' | '.join(cells)} |")
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2]


def _bar(law: Any) -> str:
    if law["least"] is not None:
        return f"≥ {law['least']:g}"
    return f"< {law['most']:g}{law['unit']}" if law["most"] is not None else ""


def numbers(runs: Sequence[Any]) -> str:
    """A page of its own for every row."""
    parts = [
        "# Every row of the published runs",
        "Made by `make bench-publish` from the files beside it, as medians. [What the rows are](../performance.md).",
    ]
    for run in runs:
        packages = ", ".join(f"{name} {version}" for name, version in run["packages"].items())
        parts.append(f"## {run['name']}: {run['title']}")
        parts.append(f"{run['at'][:10]}, {run['commit']}, Python {run['python']}, {run['machine']}; {packages}.")
        if run["rows"]:
            parts.append(_rows(run["rows"]))
        parts += run["notes"]
    return "\n\n".join(parts) + "\n"


def _rows(rows: Sequence[Any]) -> str:
    lines = [
        "| | | tokens | requests/s | of bare | CPU µs/request | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    before = None
    for row in rows:
        middle = {of: median(one[of] for one in row["measured"]) for of in row["measured"][0]}
        tokens = "" if row["tokens"] is None else f"{row['tokens']:,}"
        share = f"{median(row['of_bare']):.2f}" if row["of_bare"] else ""
        case = row["case"] if row["case"] != before else ""
        cells = (f"{middle['per_second']:,.0f}", share, f"{middle['cpu_us']:,.0f}")
        ends = (f"{middle['p50_ms']:.2f}", f"{middle['p99_ms']:.2f}")
        lines.append(f"| {' | '.join((case, row['contender'], tokens, *cells, *ends))} |")
        before = row["case"]
    return "\n".join(lines)
