"""The rows of a padded input tile that are inside of the image."""

from __future__ import annotations

from kernelmill.core.dim import Dim, ceildiv, maximum, minimum


def rows_inside(top: Dim, count: Dim, height: Dim, step: int = 1) -> tuple[Dim, Dim]:
    """Return the tile's rows [begin, end) that are in the image: of `count` rows, of which the
    first is row `top` of the image and each is `step` rows below the one before."""
    begin = minimum(count, maximum(0, ceildiv(0 - top, step)))
    return begin, maximum(begin, minimum(count, ceildiv(height - top, step)))
