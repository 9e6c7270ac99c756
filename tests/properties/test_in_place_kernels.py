"""Random kernels whose outputs may lie over inputs compute, compiled, with outputs in the memory of
inputs, what the interpreter computes with all buffers apart; on every instruction set at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, Value
from kernelmill.kernel.text import print_kernel
from kernelmill.kernel.verifier import verify_kernel
from tests.unit.codegen.native import TARGETS, Native

TASKS, ROW = 3, 40
SIZE = TASKS * ROW
INPUTS, OUTPUTS = ("x0", "x1", "x2"), ("y0", "y1", "y2")


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Blocks of loads, arithmetic and stores, in any order, at places that often are the same."""
    b = KernelBuilder("random", "Random", tasks=TASKS)
    inputs = INPUTS[: draw(st.integers(1, 3))]
    outputs = OUTPUTS[: draw(st.integers(1, 3))]
    for name in inputs:
        b.buffer(name, F32, SIZE, "in")
    for name in outputs:
        b.buffer(name, F32, SIZE, "out")
    start = 0
    for _ in range(draw(st.integers(1, 2))):
        lanes, passes = draw(st.sampled_from([(1, 4), (4, 3), (8, 2), (8, 4), (16, 1)]))
        step = lanes * draw(st.sampled_from([1, 1, 1, 1, 2])) // draw(st.sampled_from([1, 1, 1, 2]))
        step = max(step, 1)
        width = step * (passes - 1) + lanes
        if start + width > ROW:
            break
        mask = None
        if draw(st.integers(0, 3)) == 0:
            mask = b.op("lane_mask", b.index(draw(st.integers(0, lanes))), lanes=lanes)
        unroll = draw(st.booleans())
        with b.loop(0, step * passes, step, unroll=unroll) as loop:
            place = b.task * ROW + start + loop.index
            _block(draw, b, (inputs, outputs), (place, lanes), mask)
        start += draw(st.sampled_from([width, width, width, width // 2]))
    return b.kernel


def _block(
    draw: st.DrawFn, b: KernelBuilder, names: tuple[tuple[str, ...], tuple[str, ...]],
    place: tuple[Dim, int], mask: Value | None,
) -> None:  # fmt: skip
    inputs, outputs = names
    index, lanes = place
    values = [b.load(name, index, F32, lanes, mask) for name in inputs]
    waiting = list(draw(st.permutations(outputs)))
    for _ in range(draw(st.integers(1, 10))):
        what = draw(st.sampled_from(["compute", "store", "store", "load"]))
        # What is used once, and late, is what instructions read from memory themselves.
        second = draw(st.sampled_from(values))
        first = values.pop(draw(st.integers(0, len(values) - 1))) if len(values) > 1 else second
        if what == "compute":
            op = draw(st.sampled_from(["add", "mul", "sub", "max", "sqrt"]))
            values.append(b.op(op, *((first,) if op == "sqrt" else (first, second))))
        elif what == "load":
            values.append(b.load(draw(st.sampled_from(inputs)), index, F32, lanes, mask))
        elif waiting:
            b.store(waiting.pop(), index, first, mask)
    for name in waiting:
        b.store(name, index, draw(st.sampled_from(values)), mask)


def memory(kernel: Kernel, shared: Mapping[str, str], apart: bool) -> dict[str, np.ndarray]:
    """What buffers hold; outputs that are not `apart` are the memory of an input. What masks leave
    as it was is the same either way."""
    values = np.random.default_rng(0).random((len(kernel.buffers), SIZE), np.float32)
    arrays = {b.name: row.copy() for b, row in zip(kernel.buffers, values, strict=True)}
    for output, source in shared.items():
        arrays[output] = arrays[source].copy() if apart else arrays[source]
    return arrays


def written_over(data: st.DataObject, over: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """For some outputs an input, each input once."""
    found: dict[str, str] = {}
    for output, sources in over.items():
        free = sorted(sources - set(found.values()))
        if free:
            found[output] = data.draw(st.sampled_from(free))
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.data())
def test_outputs_in_the_memory_of_inputs(kernel: Kernel, data: st.DataObject) -> None:
    over = overwritable(kernel)
    kernel.buffers[:] = [
        replace(b, over=tuple(sorted(over.get(b.name, ())))) for b in kernel.buffers
    ]
    note(print_kernel(kernel))
    verify_kernel(kernel)
    shared = written_over(data, over)
    assume(shared)
    note(str(shared))
    expected = memory(kernel, shared, apart=True)
    run_kernel(kernel, expected)
    for target in (None, *TARGETS.values()):
        arrays = memory(kernel, shared, apart=False)
        if target is None:
            run_kernel(kernel, arrays)
        else:
            Native(kernel, target)(arrays, tasks=(0, TASKS))
        for buffer in kernel.buffers:
            if buffer.access == "out":
                np.testing.assert_array_equal(arrays[buffer.name], expected[buffer.name])
