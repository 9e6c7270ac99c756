"""The steady calls as a drawing."""

from __future__ import annotations

from collections.abc import Mapping

from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.measure import Standing
from tools.bench.models import STEADY, Row
from tools.bench.report import OURS, limit, ours
from tools.drawing import Line, drawing


def plot(found: Mapping[str, Standing]) -> str:
    """Each contestant's time over ours; a bar marks the machine's limit."""
    names = [n for n in CONTESTANTS if n != FLOOR and not n.startswith(OURS)]
    rows = [(row, found[row.name]) for row in STEADY if row.name in found]
    lines = [_line(row, standing) for row, standing in rows if ours(standing) is not None]
    return drawing(lines, names, f"time over {OURS}'s", "limit of the machine")


def _line(row: Row, standing: Standing) -> Line:
    own = standing.seconds[ours(standing) or OURS]
    ratios = {name: seconds / own for name, seconds in standing.seconds.items()}
    return Line(row.title, ratios, limit(standing) / own)
