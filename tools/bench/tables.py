"""Figures as text, and Markdown tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every column but the first is right-aligned."""
    lines = [" | ".join(head), " | ".join(["---", *["---:"] * (len(head) - 1)])]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def duration(seconds: float | None) -> str:
    """Three digits with a unit; a dash for None."""
    if seconds is None:
        return "-"
    factor, unit = next(((f, u) for f, u in UNITS if seconds >= f), UNITS[-1])
    return f"{seconds / factor:.3g} {unit}"
