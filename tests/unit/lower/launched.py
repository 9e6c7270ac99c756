"""Compiles a kernel and runs its tasks on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kernelmill.core.dim import evaluate
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import parse_kernel, print_kernel
from kernelmill.kernel.verifier import verify_kernel
from tests.machine_code import MachineCode, compiled_object

MARGIN = 64
"""Elements around each tensor that no kernel may change, filled with NaN or the largest number."""


def surrounded(tensor: Tensor) -> Tensor:
    """The same values and strides inside a larger memory."""
    size = elements(tensor) + 2 * MARGIN
    room = torch.full((size,), fill(tensor.dtype), dtype=tensor.dtype)
    return room.as_strided(tensor.shape, tensor.stride(), MARGIN).copy_(tensor)


def fill(dtype: torch.dtype) -> float | int | bool:
    """What surrounds tensors of this dtype."""
    if dtype.is_floating_point:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def assert_margins_untouched(tensor: Tensor) -> None:
    """Nothing was written before or after a tensor made by `surrounded`."""
    room = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    margins = torch.cat([room[:MARGIN], room[-MARGIN:]])
    expected = torch.full_like(margins, fill(tensor.dtype))
    torch.testing.assert_close(margins, expected, rtol=0, atol=0, equal_nan=True)


class Launched:
    """A compiled kernel. `kernel.dims` take their values by name at each call.

    The kernel is verified, and its text read back, on the way.
    """

    def __init__(self, kernel: Kernel, target: Machine | None = None) -> None:
        self.kernel = kernel
        verify_kernel(kernel)
        text = print_kernel(kernel)
        assert print_kernel(parse_kernel(text)) == text
        image = compiled_object(kernel, (target or host()).isa)
        self._code = MachineCode(image, kernel.name)

    def __call__(self, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        used = [tensors[buffer.name] for buffer in self.kernel.buffers]
        values = [sizes[symbol.name] for symbol in self.kernel.dims]
        # One task at a time and from the last: tasks are independent, in any order.
        tasks = reversed(range(evaluate(self.kernel.tasks, sizes)))
        ranges = [(task, task + 1) for task in tasks]
        self._code(used, values, ranges, evaluate(self.kernel.scratch, sizes))


def interpret(kernel: Kernel, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
    """Run the interpreter on the same memory. It raises IndexError for an access outside of it."""
    exact = [replace(b, elements=elements(tensors[b.name])) for b in kernel.buffers]
    arrays = {name: memory(tensor) for name, tensor in tensors.items()}
    run_kernel(replace(kernel, buffers=exact), arrays, sizes)


def elements(tensor: Tensor) -> int:
    """Elements of memory from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def memory(tensor: Tensor) -> np.ndarray:
    """That memory as a 1-d array that shares it; bf16 as its bits."""
    flat = tensor.as_strided((elements(tensor),), (1,))
    return (flat.view(torch.uint16) if flat.dtype == torch.bfloat16 else flat).numpy()


def address(index: Sequence, strides: Sequence[int]):
    """The element's place, as an int or an index expression."""
    return sum((i * stride for i, stride in zip(index, strides, strict=True)), 0)
