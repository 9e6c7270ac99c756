"""Running sums and products along one axis.

Elements are added strictly in order, in the type that eager's CPU kernels accumulate in: f64 for
f32, f32 for the half types, the type itself for the others.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32, F64, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane

Dims = tuple[Dim, ...]

LoadElement = Callable[[KernelBuilder, Dims, Lane | None], Value]
"""`load(builder, index, lane)`: one element, or the vector along the lane's symbol in the last
position of the index. In the compute type (f32 for half types)."""

StoreElement = Callable[[KernelBuilder, Dims, Lane | None, Value], None]
"""`store(builder, index, lane, value)`: the value is in the compute type."""


@dataclass(frozen=True)
class ScanSpec:
    """result[..., i, ...] joins elements 0..i along `axis` by `op`, the kernel's add or mul.

    `dtype` is that of the elements, a float or an integer. Any size may be symbolic or zero.
    """

    shape: Dims
    axis: int
    op: str
    dtype: DType
    load: LoadElement
    store: StoreElement

    @property
    def accumulate(self) -> DType:
        """Dtype of the running value."""
        return F64 if self.dtype == F32 else self.dtype.compute
