"""Element types: the ones kernels compute on, and opaque ones that only ATen handles.

This file never imports torch at load time, so that a plan can be read without it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from kernelmill.core.dataclass import dataclass

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. `kind` is "float", "int", "uint", "bool" or "opaque"; `bits` in memory.

    There is one object for each, those of this file, so that they are compared as objects: types
    are asked about by the thousand in each compile.
    """

    name: str
    kind: str
    bits: int
    torch_name: str

    @property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is not one."""
        return self.kind in ("int", "uint")

    @property
    def is_opaque(self) -> bool:
        """True for a type that no kernel computes on: its values occur in ATen steps only."""
        return self.kind == "opaque"

    @property
    def compute(self) -> DType:
        """The type of arithmetic on this type in registers (half types in f32)."""
        return F32 if self.name in ("f16", "bf16") else self

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


F64 = DType("f64", "float", 64, "float64")
F32 = DType("f32", "float", 32, "float32")
F16 = DType("f16", "float", 16, "float16")
BF16 = DType("bf16", "float", 16, "bfloat16")
I64 = DType("i64", "int", 64, "int64")
I32 = DType("i32", "int", 32, "int32")
I16 = DType("i16", "int", 16, "int16")
I8 = DType("i8", "int", 8, "int8")
U8 = DType("u8", "uint", 8, "uint8")
BOOL = DType("bool", "bool", 8, "bool")

COMPUTABLE = (F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL)
OPAQUE = (
    DType("c32", "opaque", 32, "complex32"),
    DType("c64", "opaque", 64, "complex64"),
    DType("c128", "opaque", 128, "complex128"),
    DType("u16", "opaque", 16, "uint16"),
    DType("u32", "opaque", 32, "uint32"),
    DType("u64", "opaque", 64, "uint64"),
    DType("f8e4m3fn", "opaque", 8, "float8_e4m3fn"),
    DType("f8e5m2", "opaque", 8, "float8_e5m2"),
    DType("f8e4m3fnuz", "opaque", 8, "float8_e4m3fnuz"),
    DType("f8e5m2fnuz", "opaque", 8, "float8_e5m2fnuz"),
    DType("f8e8m0fnu", "opaque", 8, "float8_e8m0fnu"),
)
BY_NAME = {dtype.name: dtype for dtype in COMPUTABLE + OPAQUE}
_BY_TORCH_NAME = {dtype.torch_name: dtype for dtype in COMPUTABLE + OPAQUE}


@cache
def to_torch(dtype: DType) -> torch.dtype:
    """Return the torch dtype of the same element type."""
    import torch

    return getattr(torch, dtype.torch_name)


@cache
def from_torch(dtype: torch.dtype) -> DType | None:
    """Return our element type for a torch dtype, or None for unsupported ones (quantised)."""
    return _BY_TORCH_NAME.get(str(dtype).removeprefix("torch."))


class InputRole(StrEnum):
    """The role of a tensor argument. Parameters and buffers may be packed ahead of the call."""

    USER = "user"  # the caller's
    PARAM = "param"  # a parameter of the model
    BUFFER = "buffer"  # a buffer of the model
