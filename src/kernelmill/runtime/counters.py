"""Counters of programs, each number with the object that owns it.

Programs share memory, packed weights and weights: the gears of a model, its captures, its prefill
and its decode step. With the owner of each number, a sum counts it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

Count = tuple[str, Hashable, int]
"""A counter's name, its owner, and the number."""

OF_ONE_CALL = frozenset(("launches", "super_kernels", "aten_calls"))
"""Counters of one call: the largest of several programs counts."""


def summed(counts: Iterable[Count]) -> dict[str, int]:
    """Return the counters of all programs by name, each owner counted once."""
    found: dict[str, int] = {}
    for (name, _), value in {(name, owner): value for name, owner, value in counts}.items():
        known = found.get(name, 0)
        found[name] = max(known, value) if name in OF_ONE_CALL else known + value
    return found
