"""The steady calls as a drawing: one line a model, one mark a contestant, SVG."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.measure import Standing
from tools.bench.models import STEADY
from tools.bench.report import OURS, limit, ours

_COLOURS = ("#888888", "#d55e00", "#000000", "#e69f00", "#cc79a7", "#0072b2", "#009e73")
_LEFT, _RIGHT, _LINE, _TOP = 330, 640, 22, 60
_LEAST, _MOST = -1.0, 4.0
"""Powers of two at the ends of the axis."""


def _x(ratio: float) -> float:
    place = min(max(log2(ratio), _LEAST), _MOST)
    return _LEFT + (place - _LEAST) / (_MOST - _LEAST) * _RIGHT


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


def plot(found: Mapping[str, Standing]) -> str:
    """Each contestant's time over ours, on a logarithmic axis; a bar marks the machine's limit."""
    rows = [(row, found[row.name]) for row in STEADY if row.name in found]
    rows = [(row, standing) for row, standing in rows if ours(standing) is not None]
    height = _TOP + _LINE * len(rows) + 40
    names = [n for n in CONTESTANTS if n != FLOOR and not n.startswith(OURS)]
    colours = dict(zip(names, (c for c in _COLOURS if c != "#000000"), strict=False))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _RIGHT + 40} {height}" '
        'font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_legend(colours),
        *_axis(height),
    ]
    for number, (row, standing) in enumerate(rows):
        y = _TOP + _LINE * number + _LINE / 2
        own = standing.seconds[ours(standing) or OURS]
        parts.append(_text(_LEFT - 12, y + 4, row.title, "end"))
        x = _x(limit(standing) / own)
        parts.append(f'<rect x="{x - 1.5:.1f}" y="{y - 7:.1f}" width="3" height="14" fill="red"/>')
        for name, colour in colours.items():
            if name in standing.seconds:
                x = _x(standing.seconds[name] / own)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(colours: Mapping[str, str]) -> list[str]:
    parts: list[str] = []
    x = 20
    for name, colour in {**colours, "limit of the machine": "red"}.items():
        parts.append(f'<circle cx="{x}" cy="16" r="4.5" fill="{colour}"/>')
        parts.append(_text(x + 9, 20, name))
        x += 40 + 7 * len(name)
    return parts


def _axis(height: int) -> list[str]:
    parts: list[str] = []
    bottom = height - 30
    for power in range(int(_LEAST), int(_MOST) + 1):
        x = _x(2.0**power)
        width = 2 if power == 0 else 0.5
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="black" '
            f'stroke-width="{width}"/>'
        )
        parts.append(_text(x, _TOP - 14, f"{2.0**power:g}", "middle"))
    parts.append(_text(_LEFT + _RIGHT / 2, height - 10, f"time over {OURS}'s", "middle"))
    return parts
