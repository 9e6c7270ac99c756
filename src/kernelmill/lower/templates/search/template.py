"""The search template: positions of values among ascending numbers: searchsorted and bucketize.

    start, end = 0, size
    while start < end:
        middle = start + (end - start) // 2
        if row[middle] >= value: end = middle        # with `right`: >
        else:                    start = middle + 1

is ATen's algorithm (BucketizationUtils.h). So the results agree also for rows that are not
ascending, and for NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, product
from kernelmill.core.dtype import I64
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value, VType
from kernelmill.lower.elements.axes import Dims, size_hint
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.schedule.template import NodeTemplate, bind_node

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


_TASK_STEPS = 8192
_TOGETHER = 4
"""Values that are searched side by side: each step waits for a load."""

_STEP_OPERATIONS = 6.0


@dataclass(frozen=True)
class SearchSchedule:
    """Tasks take `block` values each, `together` at a time. Work is in nanoseconds of one core."""

    block: int
    together: int
    tasks: Dim
    work: Dim


def steps(size: Dim) -> int:
    """Return the number of halvings until nothing of a row is left."""
    return size_hint(size).bit_length()


def plan_search(spec: SearchSpec, machine: Machine) -> SearchSchedule:
    """Plan tasks of about as many steps."""
    total, count = product(spec.shape), max(1, steps(spec.size))
    block = max(1, _TASK_STEPS // count // _TOGETHER) * _TOGETHER
    together = min(_TOGETHER, total) if isinstance(total, int) and total > 0 else _TOGETHER
    each = max(1, round(machine.time(_STEP_OPERATIONS * count, {})))
    return SearchSchedule(block, together, ceildiv(total, block), total * each)


_INDEX = VType(I64, 1)


def emit_search(builder: KernelBuilder, spec: SearchSpec, schedule: SearchSchedule) -> None:
    """Write the kernel's body, and set its `tasks`."""
    if schedule.tasks == 0:
        return
    total, together = product(spec.shape), schedule.together
    start = builder.task * schedule.block
    stop = minimum(start + schedule.block, total)
    whole = start + (stop - start) // together * together
    with builder.loop(start, whole, together, prefix="v", high=total - together) as loop:
        _search(builder, spec, [loop.index + number for number in range(together)])
    if together > 1 and not (isinstance(total, int) and total % together == 0):
        with builder.loop(whole, stop, prefix="v", high=total - 1) as loop:
            _search(builder, spec, [loop.index])


def _search(builder: KernelBuilder, spec: SearchSpec, numbers: Sequence[Dim]) -> None:
    """Search for the values with these row-major numbers."""
    # A shape without elements still needs an index for the code that never runs.
    shape = [1 if size == 0 else size for size in spec.shape]
    places = [unravel(number, shape) for number in numbers]
    if spec.size == 0:
        found: Sequence[Value] = [builder.index(0)] * len(places)
    else:
        values = [spec.value(builder, place) for place in places]
        found = _positions(builder, spec, places, values)
    for place, position in zip(places, found, strict=True):
        spec.store(builder, place, position)


def _positions(
    builder: KernelBuilder, spec: SearchSpec, places: Sequence[Dims], values: Sequence[Value]
) -> Sequence[Value]:
    count, size = len(values), spec.size
    carry = [(_INDEX, builder.index(0))] * count + [(_INDEX, builder.index(size))] * count
    if isinstance(size, int):
        with builder.loop(0, steps(size), carry=carry, prefix="s") as halving:
            halving.carry(*_halve(builder, spec, places, values, halving.carried))
        return halving.results[:count]
    # There may be nothing to search in.
    with builder.loop(0, minimum(size, 1), carry=carry, prefix="s") as once:
        again = [(_INDEX, value) for value in once.carried]
        with builder.repeat(again) as search:
            found = _halve(builder, spec, places, values, search.carried)
            left = builder.op("lt", found[0], found[count])
            for start, end in zip(found[1:count], found[count + 1 :], strict=True):
                left = builder.op("or", left, builder.op("lt", start, end))
            search.again(left, *found)
        once.carry(*search.results)
    return once.results[:count]


def _halve(
    builder: KernelBuilder, spec: SearchSpec, places: Sequence[Dims], values: Sequence[Value],
    carried: Sequence[Value],
) -> Sequence[Value]:  # fmt: skip
    """Do one step of each search and return its starts, then its ends. Finished ones stay."""
    count = len(values)
    starts, ends = list(carried[:count]), list(carried[count:])
    for i, (place, value) in enumerate(zip(places, values, strict=True)):
        start, end = starts[i], ends[i]
        half = builder.op("shr", builder.op("sub", end, start), 1)
        middle = builder.op("add", start, half)
        last = builder.index(spec.size - 1)
        position = builder.let(builder.op("min", middle, last), 0, spec.size - 1)
        number = spec.number(builder, place, position)
        stands_before = builder.op("gt" if spec.right else "ge", number, value)
        goes_left = builder.op("or", stands_before, builder.op("ge", start, end))
        ends[i] = builder.op("select", goes_left, middle, end)
        starts[i] = builder.op("select", goes_left, start, builder.op("add", middle, 1))
    return [*starts, *ends]


def _search_spec(emitter: Emitter, node: Node, target: Location) -> SearchSpec:
    (rows, values), dtype = node.operands, node.result.dtype

    def number(_: KernelBuilder, index: Dims, position: Dim) -> Value:
        row = index[:-1] if len(rows.shape) > 1 else ()
        return emitter.read(rows, (*row, position), None)

    def store(builder: KernelBuilder, index: Dims, position: Value) -> None:
        emitter.write(target, index, None, builder.cast(position, dtype))

    return SearchSpec(
        values.shape, rows.shape[-1], bool(node.attrs["right"]),
        lambda _, index: emitter.read(values, index, None), number, store,
    )  # fmt: skip


SEARCH = NodeTemplate(
    "search", frozenset({"searchsorted"}), bind_node(_search_spec), plan_search, emit_search
)
"""Positions in rows of ascending numbers, found by halving."""
