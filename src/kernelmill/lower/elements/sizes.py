"""Sizes: tuples of them, likely values of symbolic ones, division into parts."""

from __future__ import annotations

from kernelmill.core.dim import Dim, bounds

_UNKNOWN_SIZE = 128
"""What a symbolic size is taken for, within its range."""

Dims = tuple[Dim, ...]


def size_hint(dim: Dim) -> int:
    """Return the size itself, or a likely one for a symbolic size; at least 1."""
    if isinstance(dim, int):
        return max(dim, 1)
    low, high = bounds(dim)
    likely = _UNKNOWN_SIZE if high is None else min(_UNKNOWN_SIZE, high)
    return max(likely, low or 1, 1)


def part_count(count: int, size: int) -> int:
    """Return how many parts of `size` hold `count`, at least 1."""
    return max(1, -(-count // size))


def narrow_lanes(lanes: int, size: Dim) -> int:
    """Return the lanes of vectors along an axis: halved until less than twice a known size."""
    while lanes > 1 and isinstance(size, int) and lanes >= 2 * size:
        lanes //= 2
    return lanes
