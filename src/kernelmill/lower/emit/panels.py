"""Panels: the layout of a packed operand, in a buffer of constants or in scratch.

A panel holds `width` neighbouring rows of A or columns of B: for each k those `width` elements side
by side. Panels follow one another; the last one is filled up with zeros.
"""

from __future__ import annotations

from kernelmill.core.dim import Dim, ceildiv


def panel_shape(outer: Dim, depth: Dim, width: int) -> tuple[Dim, Dim, Dim]:
    """Shape (panels, depth, width) of a packed operand with `outer` rows or columns.

    Element (p, k, i) is A[p * width + i, k] or B[k, p * width + i], zero beyond `outer`; k counts
    the reduction axes row-major. The width is `Schedule.rows` for A and `Schedule.width` for B.
    """
    return (ceildiv(outer, width), depth, width)


def panel_index(panel: Dim, k: Dim, depth: Dim, width: int) -> Dim:
    """Where the elements of one k of a panel begin."""
    return (panel * depth + k) * width
