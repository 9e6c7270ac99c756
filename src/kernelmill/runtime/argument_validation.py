"""Argument validation, the slow path: for calls that the native entry has refused.

A tensor of the right type and shape with other strides is copied, as is a misaligned or a lazily
negated one; an instance of a harmless subclass is taken as a plain tensor. Anything else is an
InputError that names the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from kernelmill.core.dtype import from_torch, to_torch
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import TensorInput
from kernelmill.runtime.memory.allocation import empty_strided, lie_alike, lie_in_one_order
from kernelmill.torch_internals.dispatch import plain_memory

PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
"""Classes whose instances are memory and nothing else."""


def validated(
    entry: TensorInput,
    number: int,
    argument: object,
    shape: Sequence[int],
    strides: Sequence[int],
    in_order: bool,
) -> torch.Tensor:
    """Return `argument` itself where kernels can read it, else a copy that they can read.
    InputError if neither is possible.

    The program needs `shape` and `strides`, in elements. With `in_order`, an argument whose dims
    have another order in memory is refused.
    """
    tensor = check_kind(entry, number, argument)
    check_rank(entry, number, tensor)
    if tuple(tensor.shape) != tuple(shape):
        expected = f"shape {list(shape)}"
        if any(str(dim) != str(size) for dim, size in zip(entry.shape, shape, strict=True)):
            expected += f" from [{', '.join(map(str, entry.shape))}]"
        _refuse(entry, number, expected, f"shape {list(tensor.shape)}")
    lazy = tensor.is_neg() and not entry.dtype.is_opaque
    if not lazy and fits(tensor, strides):
        return tensor
    if entry.updated:
        came = "a lazily negated view" if lazy else _place(tensor)
        _refuse(entry, number, f"strides {list(strides)}, as it is written to", came)
    if in_order:
        check_order(f"argument {entry.name!r} (number {number})", tensor, strides)
    return _copied(entry, number, tensor, shape, strides)


def check_order(name: str, tensor: torch.Tensor, strides: Sequence[int]) -> None:
    """Raise InputError unless the dims of `tensor` have the order in memory that `strides` have."""
    if not lie_in_one_order(tensor.shape, tensor.stride(), strides):
        raise InputError(
            f"{name}: expected strides in the order of {list(strides)}, as how results lie in "
            f"memory depends on it, got strides {list(tensor.stride())}: pass a tensor that lies "
            "like the one that was traced (x.contiguous() if that was), or trace it with this one"
        )


def check_in_place(
    entry: TensorInput,
    number: int,
    given: torch.Tensor,
    taken: torch.Tensor,
    strides: Sequence[int],
) -> None:
    """Raise InputError if an argument was copied although operators index its storage directly."""
    if taken.data_ptr() != given.data_ptr():
        expected = f"strides {list(strides)}, as operators count places in its memory"
        _refuse(entry, number, expected, _place(given))


def fits(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    """Return whether kernels that expect these strides can read `tensor` without a copy."""
    if tensor.data_ptr() % alignment(tensor.dtype):
        return False
    return lie_alike(tensor.shape, tensor.stride(), strides)


def alignment(dtype: torch.dtype) -> int:
    """Return the alignment of addresses of this dtype, in bytes; 1 if only ATen reads it."""
    known = from_torch(dtype)
    return 1 if known is None or known.is_opaque else known.bytes


def check_rank(entry: TensorInput, number: int, tensor: torch.Tensor) -> None:
    """Raise InputError unless `tensor` has the rank that the program was compiled for."""
    if tensor.dim() != len(entry.shape):
        shape = f"[{', '.join(map(str, entry.shape))}]"
        _refuse(entry, number, f"shape {shape}", f"shape {list(tensor.shape)}")


def check_kind(entry: TensorInput, number: int, argument: object) -> torch.Tensor:
    """Return the argument as a plain tensor. InputError unless it is dense, on the CPU and of the
    dtype that the program was compiled for."""
    if not isinstance(argument, torch.Tensor):
        _refuse(entry, number, "a tensor", f"{type(argument).__name__} {argument!r:.60}")
    if type(argument) not in PLAIN_TENSORS:
        argument = _plain(entry, number, argument)
    if argument.layout != torch.strided or argument.is_nested:
        kind = "a nested one" if argument.is_nested else f"layout {argument.layout}"
        _refuse(entry, number, "a dense tensor", kind)
    if argument.device.type != "cpu":
        _refuse(entry, number, "a tensor on the CPU", f"one on {argument.device}")
    if argument.dtype != to_torch(entry.dtype):
        came = from_torch(argument.dtype)
        _refuse(entry, number, f"dtype {entry.dtype}", f"dtype {came or argument.dtype}")
    if not has_memory(argument):
        _refuse(entry, number, "a tensor with memory", "a wrapper, or one whose memory is freed")
    return argument


def _plain(entry: TensorInput, number: int, argument: torch.Tensor) -> torch.Tensor:
    """Return a subclass instance's memory as a plain tensor; InputError if the class dispatches."""
    kind: Any = type(argument)
    base: Any = torch.Tensor
    dispatches = kind.__torch_dispatch__ is not base.__torch_dispatch__
    plain = None if dispatches else plain_memory(argument)
    if plain is None:
        _refuse(entry, number, "a plain torch.Tensor", f"its subclass {kind.__name__}")
    return plain


def has_memory(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is no wrapper and its memory is not freed."""
    try:
        return tensor.data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:
        return False


def _copied(
    entry: TensorInput,
    number: int,
    tensor: torch.Tensor,
    shape: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    if _overlap(shape, strides):
        _refuse(entry, number, f"an expanded tensor with strides {list(strides)}", _place(tensor))
    copy = empty_strided(shape, strides, tensor.dtype)
    copy.copy_(tensor.detach())
    return copy


def _overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements share addresses: a stride is less than the extent of inner dims."""
    if 0 in shape:
        return False
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _place(tensor: torch.Tensor) -> str:
    return f"strides {list(tensor.stride())} at address {tensor.data_ptr():#x}"


def _refuse(entry: TensorInput, number: int, expected: str, came: str) -> NoReturn:
    raise InputError(f"argument {entry.name!r} (number {number}): expected {expected}, got {came}")
