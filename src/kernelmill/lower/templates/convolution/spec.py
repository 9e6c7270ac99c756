"""A convolution in the terms of one of its layouts."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, maximum, minimum
from kernelmill.lower.schedule.template import Template


@dataclass(frozen=True)
class Convolution:
    """The spec of a convolution, and the layout that computes it."""

    layout: Template[Any, Any]
    what: Any


def rows_inside(top: Dim, count: Dim, height: Dim, step: int = 1) -> tuple[Dim, Dim]:
    """Return the tile's rows [begin, end) that are in the image: of `count` rows, of which the
    first is row `top` of the image and each is `step` rows below the one before."""
    begin = minimum(count, maximum(0, ceildiv(0 - top, step)))
    return begin, maximum(begin, minimum(count, ceildiv(height - top, step)))
