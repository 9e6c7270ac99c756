"""Positions of values among ascending numbers: searchsorted and bucketize.

    start, end = 0, size
    while start < end:
        middle = start + (end - start) // 2
        if row[middle] >= value: end = middle        # with `right`: >
        else:                    start = middle + 1

is ATen's way (BucketizationUtils.h), whose results it has for rows that are not ascending too, and
for NaN, which is neither.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims

LoadValue = Callable[[KernelBuilder, Dims], Value]
"""`load(builder, index)`: one value, in the compute type (f32 for half types)."""

LoadNumber = Callable[[KernelBuilder, Dims, Dim], Value]
"""`number(builder, index, position)`: the number at a position of the row for the value there."""

StorePosition = Callable[[KernelBuilder, Dims, Value], None]
"""`store(builder, index, position)`: one element of the result, given as an i64."""


@dataclass(frozen=True)
class SearchSpec:
    """result[index] is the position of value[index] among `size` numbers, in `shape`. Any size may
    be symbolic or zero. With `right` positions are behind equal numbers, else before them."""

    shape: Dims
    size: Dim
    right: bool
    value: LoadValue
    number: LoadNumber
    store: StorePosition
