"""Orders of the elements along one axis: sort and topk, as positions.

Equal elements have the order that eager gives them. A stable sort has only one; otherwise it is
what the C++ standard library that torch is built with makes of them (`introsort.py`): its `sort`,
and for topk its `nth_element` or `partial_sort`, as ATen's SortingKernel.cpp and TopKImpl.h call
them.

Elements are compared by integer keys: floats by their bits, so that zeros are equal and NaN, all
equal too, are above everything.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F64, I32, I64, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane

Dims = tuple[Dim, ...]

LoadElement = Callable[[KernelBuilder, Dims, Lane | None], Value]
"""`load(builder, index, lane)`: one element, or the vector along the lane's symbol at the sorted
axis. In the compute type (f32 for half types)."""

StorePosition = Callable[[KernelBuilder, Dims, Value], None]
"""`store(builder, index, position)`: one element of the result, i64."""

RADIX_SORTED = 32768
"""Of so many integers and more torch sorts a single ascending row by a way that is stable (ATen's
`can_use_radix_sort`, with its grain size)."""


@dataclass(frozen=True)
class Top:
    """Only the first `count` positions; without `sorted` in the order in which they are found."""

    count: Dim
    sorted: bool


@dataclass(frozen=True)
class SortSpec:
    """result[..., i, ...] is where along `axis` the element is that comes i-th.

    Any size may be symbolic or zero. With `stable` equal elements keep their order; with an integer
    there, in rows of so many elements and more.
    """

    shape: Dims
    axis: int
    dtype: DType
    descending: bool
    stable: bool | int
    top: Top | None
    load: LoadElement
    store: StorePosition

    @property
    def key(self) -> DType:
        """Dtype that elements are compared by."""
        return I64 if self.dtype in (F64, I64) else I32

    @property
    def size(self) -> Dim:
        """Elements of a row."""
        return self.shape[self.axis]

    @property
    def length(self) -> Dim:
        """Positions that a row gives."""
        return self.size if self.top is None else self.top.count
