"""`python -m bench compare A.json B.json`: whether B is faster than A, row by row.

Rates of two runs do not compare; shares of the bare answer do, and so, roughly, does processor time in shares of the
bare answer's. Each is given as B over A, with twice the standard error of the two medians as its spread: what lies
within the spread is the same.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median, stdev
from typing import Any

MEDIANS = 1.2533
"""The standard error of a median, in those of a mean."""


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench compare", description="B against A, by their ratios.")
    parser.add_argument("a", type=Path, metavar="A.json")
    parser.add_argument("b", type=Path, metavar="B.json")
    asked = parser.parse_args(words)
    print(compared(_read(asked.a), _read(asked.b)))


def _read(path: Path) -> Any:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} cannot be read: {error}. Name a file that a bench has kept.") from None
    if not isinstance(kept, dict) or not {"name", "rows", "laws"} <= kept.keys():
        raise SystemExit(f"{path} is not what a bench keeps: it has no name, rows and laws.")
    return kept


def compared(a: Any, b: Any) -> str:
    if a["name"] != b["name"]:
        raise SystemExit(f"Only runs of the same bench compare; these are {a['name']} and {b['name']}.")
    lines = [f"{a['name']}: A {a['commit']} of {a['at']}, B {b['commit']} of {b['at']}; B over A", ""]
    lines.append(f"{'':<58}{'ratio':>7}{'spread':>8}{'processor':>11}{'spread':>8}")
    rows, cpu = ({_label(row): row for row in kept["rows"]} for kept in (a, b)), (_by_cpu(a), _by_cpu(b))
    before, after = rows
    for label in (one for one in before if one in after):
        shares = [row["of_bare"] for row in (before[label], after[label])]
        if all(shares) and not label.startswith(_BARE):
            lines.append(_line(label, _quotient(*shares), _quotient(cpu[0].get(label, []), cpu[1].get(label, []))))
    laws = [{law["name"]: law for law in kept["laws"]} for kept in (a, b)]
    for name in (one for one in laws[0] if one in laws[1]):
        one, other = laws[0][name], laws[1][name]
        turned = one["most"] is not None  # less is better
        lines.append(_line(name, _quotient(one["each"], other["each"], turned), _quotient(one["cpu"], other["cpu"])))
    return "\n".join(lines)


_BARE = "bare"


def _label(row: Any) -> str:
    size = "" if row["tokens"] is None else f", {row['tokens']:,} tokens"
    return f"{row['contender']}{size}: {row['case']}"


def _by_cpu(kept: Any) -> dict[str, list[float]]:
    """Each repeat's processor time of the bare answer, over the row's."""
    bare = {
        row["case"]: [one["cpu_us"] for one in row["measured"]] for row in kept["rows"] if row["contender"] == _BARE
    }
    return {
        _label(row): [least / one["cpu_us"] for least, one in zip(bare[row["case"]], row["measured"], strict=True)]
        for row in kept["rows"]
        if row["case"] in bare and all(one["cpu_us"] for one in row["measured"])
    }


def _quotient(a: Sequence[float], b: Sequence[float], turned: bool = False) -> tuple[float, float] | None:
    """B over A by their medians, and its spread; None where one of them has nothing to say."""
    if not a or not b or not median(a) or not median(b):
        return None
    found = median(a) / median(b) if turned else median(b) / median(a)
    return found, 2 * found * math.hypot(_error(a), _error(b))


def _error(each: Sequence[float]) -> float:
    """Relative; of a single measurement nothing is known, and a tenth is assumed."""
    return MEDIANS * stdev(each) / math.sqrt(len(each)) / median(each) if len(each) > 1 else 0.1


def _line(label: str, rate: tuple[float, float] | None, cpu: tuple[float, float] | None) -> str:
    cells = [f"{one[0]:.2f}".rjust(width) + f"±{one[1]:.2f}".rjust(8) if one else "-".rjust(width) + "-".rjust(8)
             for one, width in ((rate, 7), (cpu, 11))]  # fmt: skip
    return f"{label:<58}{''.join(cells)}   {_word(rate)}" + (f", by the processor {_word(cpu)}" if cpu else "")


def _word(found: tuple[float, float] | None) -> str:
    if found is None:
        return "not measured"
    quotient, spread = found
    if abs(quotient - 1) <= spread:
        return "same within the noise"
    return "faster" if quotient > 1 else "slower"
