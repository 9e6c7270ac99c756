"""The code of searches: some values side by side, without branches on results."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, minimum, product
from kernelmill.core.dtype import I64
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value, VType
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.templates.search.spec import SearchSchedule, SearchSpec, steps

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
