"""Panels: the layout of a packed operand, in a buffer of constants or in scratch.

A panel holds `width` neighbouring rows of A or columns of B: for each k those `width` elements side
by side. Panels follow one another; the last one is filled up with zeros.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.graph.ir import Value

AHEAD_BYTES = 2048
"""How far ahead of their use panels are fetched that are read once, one after the other: what finds
such a stream by itself stops at the end of a small page."""


@dataclass(frozen=True)
class Rows:
    """Rows of weights that panels of `width` outs are copies of.

    `value` is a view of shape (groups, outs, channels, taps); a panel has the order
    [block of channels][tap][channel][out], outs that are not there being zeros.
    """

    value: Value
    width: int
    block: int = 1


def panel_shape(outer: Dim, depth: Dim, width: int) -> tuple[Dim, Dim, Dim]:
    """Return the shape (panels, depth, width) of an operand with `outer` rows or columns.

    Element (p, k, i) is A[p * width + i, k] or B[k, p * width + i], zero beyond `outer`; k counts
    the reduction axes row-major. The width is `Schedule.rows` for A and `Schedule.width` for B.
    """
    return (ceildiv(outer, width), depth, width)


def panel_index(panel: Dim, k: Dim, depth: Dim, width: int) -> Dim:
    """Return the element number where one k of a panel begins."""
    return (panel * depth + k) * width
