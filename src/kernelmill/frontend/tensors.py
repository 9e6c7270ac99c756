"""Types of traced (fake) tensors, with strides if they are not row-major."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import from_torch
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.ir import TensorType, row_major
from kernelmill.torch_internals.tracing import is_traced


def carried_type(tensor: torch.Tensor, symbols: SymbolTable, what: str) -> TensorType:
    """Return the type of a traced tensor. UnsupportedError for one that no program can hold:
    sparse, quantised, nested, a subclass, or on another device than the CPU."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and not is_traced(tensor):
        raise UnsupportedError(f"{what} is a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(f"{what} has the layout {tensor.layout}, not strided")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{what} is on {tensor.device}, not on the CPU")
    dtype = from_torch(tensor.dtype)
    if dtype is None:
        raise UnsupportedError(f"{what} has the dtype {tensor.dtype}")
    shape = symbols.dims(tensor.shape)
    strides = symbols.dims(tensor.stride())
    return TensorType(dtype, shape, None if is_row_major(shape, strides) else strides)


def is_row_major(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether strides are dense and row-major; a stride of size 1 is free."""
    if any(size == 0 for size in shape):
        return True
    wanted = row_major(shape)
    return all(
        size == 1 or have == want for size, have, want in zip(shape, strides, wanted, strict=True)
    )


def lies_row_major(tensor: torch.Tensor) -> bool:
    """Return whether a (fake) tensor is dense and row-major."""
    symbols = SymbolTable(lambda symbol: None)
    return is_row_major(symbols.dims(tensor.shape), symbols.dims(tensor.stride()))


def dense_strides(kind: TensorType) -> tuple[Dim, ...] | None:
    """Return the strides, if they are a dense permutation of row-major and not row-major itself."""
    return None if kind.strides is None or _inner_first(kind) is None else kind.strides


def memory_order(kind: TensorType) -> tuple[int, ...]:
    """Return the dims from the outermost to the innermost in memory; unchanged if it has gaps."""
    found = None if kind.strides is None else _inner_first(kind)
    return tuple(range(kind.rank)) if found is None else tuple(reversed(found))


def _inner_first(kind: TensorType) -> list[int] | None:
    """Return the dims by growing stride, if the memory is dense in some order of the dims."""
    strides = kind.memory_strides
    order = [d for d, size in enumerate(kind.shape) if size == 1]
    left = [d for d in reversed(range(kind.rank)) if d not in order]
    expected: Dim = 1
    while left:
        found = next((d for d in left if strides[d] == expected), None)
        if found is None:
            return None
        left.remove(found)
        order.append(found)
        expected = expected * kind.shape[found]
    return order


def overlaps(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether elements share addresses: a dim of stride 0, or constant sizes and strides
    that reach one address in two ways. Undecided symbolic sizes count as no."""
    pairs = [(stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if any(size == 0 for _, size in pairs):
        return False
    if any(stride == 0 for stride, _ in pairs):
        return True
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return len(known) == len(pairs) and _collide(sorted(known))


def _collide(pairs: Sequence[tuple[int, int]]) -> bool:
    """Return whether dims (stride, size), by growing stride, reach an address in two ways."""
    reach, nested = 0, True
    for stride, size in pairs:
        nested = nested and stride > reach
        reach += (size - 1) * stride
    count = prod(size for _, size in pairs)
    if nested or count > reach + 1:
        return not nested
    places = np.zeros(1, np.int64)
    for stride, size in pairs:
        places = np.add.outer(places, stride * np.arange(size)).reshape(-1)
    return len(np.unique(places)) < count
