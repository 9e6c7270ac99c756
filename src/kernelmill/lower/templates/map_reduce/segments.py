"""Cuts of an axis into parts in which conditions are constant: the pieces of a concatenation, the
inside of a padded image. No element of such a part tests them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from kernelmill.core.dim import Dim, bounds, linear_part
from kernelmill.lower.elements.domain import Access, AccessKind, Axis

MOST_SEGMENTS = 64
"""Each is code of its own."""

MANY_BRANCHES = 5
"""Fewer parts of an axis that is no vector's are told apart by branches, once a row."""


def segments(axis: Axis, accesses: Iterable[Access]) -> Sequence[tuple[int, int]]:
    """Return the parts [first, end) of an axis; none where there is nothing to gain."""
    if not isinstance(axis.extent, int):
        return ()
    conditions = {a.expression for a in accesses if a.kind is AccessKind.CONDITION}
    cuts = {cut for condition in conditions for cut in _cuts(condition, axis)}
    inside = sorted(cut for cut in cuts if 0 < cut < axis.extent)
    if not inside or len(inside) >= MOST_SEGMENTS:
        return ()
    return tuple(pairwise((0, *inside, axis.extent)))


def _cuts(condition: Dim, axis: Axis) -> Iterator[int]:
    """Yield positions where `condition >= 0` begins or ends whatever other axes are."""
    linear = linear_part(condition, axis.name)
    factor = 0 if linear is None else linear[0]
    if linear is None or not isinstance(factor, int) or factor == 0:
        return
    for bound in bounds(linear[1]):
        if bound is not None:
            yield -(bound // factor) if factor > 0 else bound // -factor + 1
