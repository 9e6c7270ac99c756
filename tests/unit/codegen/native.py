"""Compiles a kernel and calls it on numpy arrays.

bf16 has no numpy type: its arrays hold the bits as uint16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kernelmill import codegen
from kernelmill.core.dtype import DType
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel, Value
from tests.machine_code import MachineCode

NUMPY: dict[str, type[np.generic]] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8,
    "bool": np.bool_,
}  # fmt: skip
TARGETS = {
    level: NAMED[f"x86-64-v{level}"]
    for level in (2, 3, 4)
    if host_isa().runs(NAMED[f"x86-64-v{level}"])
} or {0: host_isa()}
"""Every target that this machine can run, by psABI level."""


class Native:
    """A compiled kernel that can be called on arrays."""

    def __init__(self, kernel: Kernel, target: Isa | None = None) -> None:
        self.kernel = kernel
        image = codegen.compile_kernel(kernel, target or host_isa())
        self._code = MachineCode(image, kernel.name)

    def __call__(
        self,
        arrays: Mapping[str, np.ndarray],
        dims: Sequence[int] = (),
        tasks: tuple[int, int] = (0, 1),
        scratch: int = 0,
    ) -> None:
        buffers = [arrays[buffer.name] for buffer in self.kernel.buffers]
        self._code(buffers, dims, [tasks], scratch)


def map_kernel(
    body: Callable[..., Value], sources: Sequence[DType], result: DType, lanes: int, count: int
) -> Kernel:
    """y[i] = body(builder, x0[i], x1[i], ...) for `count` elements, a multiple of `lanes`."""
    builder = KernelBuilder("kernel", "Map")
    names = [builder.buffer(f"x{i}", dtype, count, "in") for i, dtype in enumerate(sources)]
    builder.buffer("y", result, count, "out")
    with builder.loop(0, count, lanes) as loop:
        values = [
            builder.load(name, loop.index, dtype, lanes)
            for name, dtype in zip(names, sources, strict=True)
        ]
        builder.store("y", loop.index, body(builder, *values))
    return builder.kernel


def run_map(
    body: Callable[..., Value],
    arrays: Sequence[np.ndarray],
    sources: Sequence[DType],
    result: DType,
    lanes: int,
    target: Isa | None = None,
) -> np.ndarray:
    """Compile `map_kernel`, run it on the arrays (any equal length) and give the results."""
    length = len(arrays[0])
    count = -(-length // lanes) * lanes
    padded = {
        f"x{i}": np.concatenate([array, np.zeros(count - length, array.dtype)])
        for i, array in enumerate(arrays)
    }
    padded["y"] = np.zeros(count, NUMPY[result.name])
    Native(map_kernel(body, sources, result, lanes, count), target)(padded)
    return padded["y"][:length]
