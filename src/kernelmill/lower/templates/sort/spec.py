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
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.dtype import F64, I32, I64, DType
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims, narrow_lanes, size_hint
from kernelmill.lower.templates.sort.introsort import STACK_WORDS

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


_TASK_ELEMENTS = 2048
PARTIAL = 64
"""Of so many times k elements and more, topk keeps the k in a heap."""


@dataclass(frozen=True)
class SortSchedule:
    """Tasks take `rows` rows each; `lanes` elements become keys at a time. `scratch` is in bytes,
    work in nanoseconds of one core."""

    rows: int
    lanes: int
    tasks: Dim
    scratch: Dim
    work: Dim


def plan_sort(spec: SortSpec, machine: Machine) -> SortSchedule:
    """Plan tasks of independent rows; short ones share a task."""
    total = product(size for axis, size in enumerate(spec.shape) if axis != spec.axis)
    rows = max(1, _TASK_ELEMENTS // size_hint(spec.size))
    lanes = narrow_lanes(machine.isa.vector_bits // spec.key.bits, spec.size)
    held = spec.length if streams(spec) is True else spec.size
    words = STACK_WORDS + ceildiv(held * spec.key.bytes, 8) + held
    rounds = 2 if spec.top is not None else size_hint(spec.size).bit_length() + 1
    work = total * spec.size * 2 * rounds + 1
    return SortSchedule(rows, lanes, ceildiv(total, rows), words * 8, work)


def streams(spec: SortSpec) -> bool | None:
    """Return whether the best are kept in a heap as the row is read; None for unknown sizes."""
    if spec.top is None:
        return False
    left = spec.size - spec.top.count * PARTIAL
    return left >= 0 if isinstance(left, int) else None
