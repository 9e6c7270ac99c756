"""Compiles a kernel and runs its tasks on torch tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernelmill import codegen
from kernelmill.core.dim import evaluate
from kernelmill.core.target import Target, host
from kernelmill.kernel.ir import Kernel
from tests.unit.codegen.native import link

MARGIN = 64
"""Elements around each tensor that no kernel may change, filled with NaN or the largest number."""


def surrounded(tensor: Tensor) -> Tensor:
    """The same values and strides inside a larger memory."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    room = torch.full((max(reach, 0) + 2 * MARGIN,), fill(tensor.dtype), dtype=tensor.dtype)
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
    """A compiled kernel. `kernel.dims` take their values by name at each call."""

    def __init__(self, kernel: Kernel, target: Target | None = None) -> None:
        self.kernel = kernel
        image = codegen.compile_kernel(kernel, target or host())
        self._tracker, address = link(image, kernel.name)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._function = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)(address)

    def __call__(self, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        used = [tensors[buffer.name].data_ptr() for buffer in self.kernel.buffers]
        pointers = (ctypes.c_void_p * len(used))(*used)
        values = [sizes[symbol.name] for symbol in self.kernel.dims]
        numbers = (ctypes.c_int64 * len(values))(*values)
        scratch = torch.full((evaluate(self.kernel.scratch, sizes) // 4 + 16,), float("nan"))
        aligned = (scratch.data_ptr() + 63) // 64 * 64
        # One task at a time and from the last: tasks are independent, in any order.
        for task in reversed(range(evaluate(self.kernel.tasks, sizes))):
            self._function(pointers, numbers, task, task + 1, aligned)


def storage_elements(tensor: Tensor) -> int:
    """Elements of the memory that a tensor lies in."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def address(index: Sequence, strides: Sequence[int]):
    """The element's place, as an int or an index expression."""
    return sum((i * stride for i, stride in zip(index, strides, strict=True)), 0)
