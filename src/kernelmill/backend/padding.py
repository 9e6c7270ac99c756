"""Whether a graph's calls may be padded to its gears, and how."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.backend.gears import CaptureGears
from kernelmill.core.dim import symbols
from kernelmill.core.errors import PaddingError
from kernelmill.graph.ir import Graph, Input
from kernelmill.passes.padding import padding_of
from kernelmill.passes.size_checks import DropSizeChecks
from kernelmill.runtime.geared import GearedProgram
from kernelmill.runtime.padded_calls import PaddedCalls


def padded_calls(
    graph: Graph,
    gears: CaptureGears,
    program: GearedProgram,
    masks: frozenset[str],
) -> PaddedCalls:
    """Runs calls at the smallest gear that holds their sizes.

    Raises PaddingError when padding could change a result.
    """
    for symbol in program.symbols:
        if symbol not in graph.symbols:
            raise PaddingError(f'gear_miss="pad": no argument tells {symbol} apart')
    padding = padding_of(DropSizeChecks().apply(graph), frozenset(program.symbols), masks)
    tensors = tuple(
        (number, entry.value.shape)
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input)
    )
    # The sizes of a call are held against the trace, those of gears were.
    fixed = next(iter(gears.values.values()))
    known = fixed.keys() | set(program.symbols)
    padding = replace(padding, fixed=tuple(fixed.items()), tensors=tensors)
    read = [dim for _, shape in tensors for dim in shape]
    for result in padding.results:
        read += [*result.strides, *(factor for axis in result.axes for factor in axis)]
    for symbol in sorted({s for dim in read for s in symbols(dim)}):
        if symbol not in known:  # the size of what arguments are views of, which torch may trace
            raise PaddingError(f'gear_miss="pad": no argument has the size {symbol}')
    return PaddedCalls(padding, program, gears.guards.broken)
