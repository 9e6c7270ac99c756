"""A long-lived argument as it was when it was bound."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass

import torch

from kernelmill.runtime import linker
from kernelmill.runtime.samples import Sample, take_sample


@dataclass(frozen=True)
class CellState:
    """What a parameter was like when it was bound. `version` is None where torch counts none."""

    impl: int
    data: int
    version: int | None
    dtype: int
    layout: tuple[int, ...]
    sample: Sample


@dataclass
class Cell:
    """A bound parameter. `copy` is what kernels read when that has other strides."""

    argument: int
    reference: weakref.ref[torch.Tensor]
    state: CellState
    copy: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """What kernels read. It is there while a call has the parameter."""
        tensor = self.copy if self.copy is not None else self.reference()
        assert tensor is not None
        return tensor

    @property
    def address(self) -> int:
        return self.state.data if self.copy is None else self.copy.data_ptr()


def read_state(tensor: torch.Tensor) -> CellState:
    """The state of a parameter now."""
    return CellState(*_outside(tensor), take_sample(tensor))


def same_but_contents(tensor: torch.Tensor, state: CellState) -> bool:
    """Whether a parameter is in this state, without a look at its memory."""
    known = (state.impl, state.data, state.version, state.dtype, state.layout)
    return _outside(tensor) == known


def _outside(tensor: torch.Tensor) -> tuple[int, int, int | None, int, tuple[int, ...]]:
    version = None if tensor.is_inference() else tensor._version
    layout = (*tensor.shape, *tensor.stride())
    return tensor._cdata, tensor.data_ptr(), version, scalar_type(tensor), layout


def scalar_type(tensor: torch.Tensor) -> int:
    """The number that torch's C shims give for the dtype."""
    handle, number = ctypes.c_void_p(tensor._cdata), ctypes.c_int32()
    linker.torch_library().aoti_torch_get_dtype(ctypes.byref(handle), ctypes.byref(number))
    return number.value
