"""Times of several contestants as a drawing: one line a row, one mark a contestant, SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

_COLOURS = ("#888888", "#d55e00", "#e69f00", "#cc79a7", "#0072b2", "#009e73")
_LEFT, _RIGHT, _LINE, _TOP = 330, 640, 22, 60
_LEAST, _MOST = -1.0, 4.0
"""Powers of two at the ends of the axis."""


@dataclass(frozen=True)
class Line:
    """A row: its title, the place of each contestant on the axis, and of a bar, if it has one."""

    title: str
    places: Mapping[str, float]
    bar: float | None = None


def drawing(lines: Sequence[Line], names: Sequence[str], axis: str, bar: str = "") -> str:
    """Return the lines on a logarithmic axis from 1/2 to 16; what lies outside is put at an end.

    names   the contestants in the order of the legend, six at most
    axis    what its numbers are
    bar     what the bars mark; "": there are none
    """
    height = _TOP + _LINE * len(lines) + 40
    colours = dict(zip(names, _COLOURS, strict=False))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _RIGHT + 40} {height}" '
        'font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_legend({**colours, bar: "red"} if bar else colours),
        *_axis(height, axis),
    ]
    for number, line in enumerate(lines):
        y = _TOP + _LINE * number + _LINE / 2
        parts.append(_text(_LEFT - 12, y + 4, line.title, "end"))
        if line.bar is not None:
            x = _x(line.bar) - 1.5
            parts.append(f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="3" height="14" fill="red"/>')
        for name, colour in colours.items():
            if name in line.places:
                x = _x(line.places[name])
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _x(ratio: float) -> float:
    place = min(max(log2(ratio), _LEAST), _MOST)
    return _LEFT + (place - _LEAST) / (_MOST - _LEAST) * _RIGHT


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


def _legend(colours: Mapping[str, str]) -> list[str]:
    parts: list[str] = []
    x = 20
    for name, colour in colours.items():
        parts.append(f'<circle cx="{x}" cy="16" r="4.5" fill="{colour}"/>')
        parts.append(_text(x + 9, 20, name))
        x += 40 + 7 * len(name)
    return parts


def _axis(height: int, title: str) -> list[str]:
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
    parts.append(_text(_LEFT + _RIGHT / 2, height - 10, title, "middle"))
    return parts
