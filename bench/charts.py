"""Charts: plain SVG, drawn by hand. Bars of rates, each group to a scale of its own; below them the laws, each beside
its bar.

A chart stands on a card of its own and takes its colours from the reader's scheme, so that it can be read on light and
on dark pages. Text is text, in whatever font the reader has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, MARGIN, LABEL, SAID = 860, 24, 280, 150
ROW, GAP, THICK = 22, 14, 12
PLOT = WIDTH - 2 * MARGIN - LABEL - SAID
AT_THE_BAR = 0.5
"""Where on its track a law's bar stands."""

STYLE = """
.card{fill:#fff;stroke:#d0d7de}.text{fill:#1f2328}.soft{fill:#59636e}.rail{fill:#eef1f4}
.bare{fill:#9aa4af}.ours{fill:#1f6feb}.other{fill:#bf8700}.line{stroke:#1f2328}
.holds{fill:#1a7f37}.fails{fill:#cf222e}
@media(prefers-color-scheme:dark){
.card{fill:#161b22;stroke:#3d444d}.text{fill:#f0f6fc}.soft{fill:#a8b1bb}.rail{fill:#262c36}
.bare{fill:#7d8590}.ours{fill:#4493f8}.other{fill:#d29922}.line{stroke:#f0f6fc}
.holds{fill:#3fb950}.fails{fill:#f85149}}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:17px;font-weight:600}
.head{font-weight:600}.small{font-size:11px}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    said: str
    kind: str
    """`ours`, `bare` or `other`."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Track:
    """A law: how far it is from its bar; None where there is none."""

    name: str
    value: float
    bar: float | None
    holds: bool | None
    unit: str = ""


def chart(title: str, note: str, groups: Sequence[Group], tracks: Sequence[Track]) -> str:
    parts: list[str] = []
    y = MARGIN + 16
    parts.append(_text(MARGIN, y, title, "text title"))
    y += 20
    parts.append(_text(MARGIN, y, note, "soft small"))
    y += GAP
    for group in groups:
        y = _group(parts, y, group)
    if tracks:
        y = _tracks(parts, y, tracks)
    height = y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _group(parts: list[str], y: int, group: Group) -> int:
    y += GAP + 8
    parts.append(_text(MARGIN, y, group.name, "text head"))
    y += 6
    most = max(bar.high for bar in group.bars) or 1.0
    left = MARGIN + LABEL
    for bar in group.bars:
        middle = y + ROW / 2
        length = PLOT * bar.value / most
        parts.append(_text(left - 10, middle + 4, bar.label, "text", anchor="end"))
        parts.append(_box(left, middle - THICK / 2, length, bar.kind))
        if bar.high > bar.low:
            low, high = (left + PLOT * edge / most for edge in (bar.low, bar.high))
            parts.append(
                f'<path class="line" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 3}v6M{high:.1f} '
                f'{middle - 3}v6" opacity=".55"/>'
            )
        parts.append(_text(left + PLOT + 10, middle + 4, bar.said, "soft"))
        y += ROW
    return y


def _tracks(parts: list[str], y: int, tracks: Sequence[Track]) -> int:
    """The tick is the bar; green has passed it."""
    y += GAP + 8
    parts.append(_text(MARGIN, y, "Targets", "text head"))
    y += 6
    wide = WIDTH - 2 * MARGIN - SAID - 10
    for track in tracks:
        y += ROW - 4
        parts.append(_text(MARGIN, y, track.name, "text"))
        said = f"{track.value:.2f}{track.unit}" + ("" if track.bar is None else f" · target {track.bar:g}")
        parts.append(_text(WIDTH - MARGIN - SAID, y + (8 if track.bar else 0), said, "text"))
        y += 6
        if track.bar:
            kind = "holds" if track.holds else "fails"
            parts.append(_box(MARGIN, y, wide, "rail", 6))
            parts.append(_box(MARGIN, y, wide * min(1.0, AT_THE_BAR * track.value / track.bar), kind, 6))
            at = MARGIN + wide * AT_THE_BAR
            parts.append(f'<path class="line" d="M{at:.1f} {y - 3}v12" stroke-width="2"/>')
            y += GAP
    return y


def _box(x: float, y: float, length: float, kind: str, thick: float = THICK) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{max(length, 1):.1f}" height="{thick}" rx="2"/>'


def _text(x: float, y: float, words: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
