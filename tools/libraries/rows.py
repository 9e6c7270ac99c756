"""All rows."""

from __future__ import annotations

from tools.libraries import images, others, text
from tools.libraries.row import Row


def all_rows() -> tuple[Row, ...]:
    """Every row, by library."""
    rows = (*text.ROWS, *images.ROWS, *others.ROWS)
    return tuple(sorted(rows, key=lambda row: row.of.lower()))


def named(name: str) -> Row:
    """The row of this name."""
    return next(row for row in all_rows() if row.name == name)
