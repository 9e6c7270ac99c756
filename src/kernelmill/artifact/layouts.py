"""What is asked of tensors besides what the native entry checks of inputs: all, of those that a
trace has asked for their dtype or sizes and that its program does not read, and strides, where the
trace has asked for these. An entry takes copies of arguments with other strides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernelmill.artifact.fingerprint import name_of
from kernelmill.artifact.manifest import Guard

FREE_FROM = 2
"""Sizes from this on are alike where a dim is free: torch traces 0 and 1 for themselves."""

LAYOUT, SIZE, STRIDES, FLAGS = "tensor", "size", "strides", "flags"
"""Kinds of guards. The name of the first has the free dims, that of the second a dim of each of its
two tensors, which are of one size, that of the third the dims whose strides count. The last is of
inputs, where the trace has asked for their class, or whether they require grad."""


def layout_of(value: Any) -> tuple[Any, ...]:
    """What can be asked of a tensor besides its contents. TypeError for another value."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(name_of(type(value)))
    strided = value.layout == torch.strided
    return (
        type(value), value.dtype, value.device, value.layout, value.requires_grad,
        value.is_conj(), value.is_neg(), value.shape, value.stride() if strided else (),
    )  # fmt: skip


def layout_text(value: Any, free: str) -> str:
    """The same as text; of the dims `free`, numbers with spaces between, it says that they are no
    special ones. TypeError for what is no tensor."""
    kind, dtype, device, layout, grad, conj, neg, shape, strides = layout_of(value)
    open_dims = set(map(int, free.split()))
    sizes = [
        f"{FREE_FROM}.." if n in open_dims and size >= FREE_FROM else str(size)
        for n, size in enumerate(shape)
    ]
    lies = "contiguous" if strides and value.is_contiguous() else str(strides)
    flags = [name for name, flag in (("grad", grad), ("conj", conj), ("neg", neg)) if flag]
    words = [name_of(kind), dtype, device, layout, f"[{', '.join(sizes)}]", lies, *flags]
    return " ".join(map(str, words))


def sizes_text(value: Any, other: Any, dims: str) -> str:
    """Whether a dim of one tensor is as large as one of another. TypeError for other values."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise TypeError(name_of(type(value)))
    mine, its = map(int, dims.split())
    return str(mine < value.dim() and its < other.dim() and value.shape[mine] == other.shape[its])


def strides_text(value: Any, dims: str) -> str:
    """The strides of the dims N; of dims N:M, that the stride of N is what M takes, where it is so.
    TypeError for other values."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise TypeError(name_of(type(value)))
    words: list[str | int] = []
    shape, strides = value.shape, value.stride()
    for dim in dims.split():
        n, *inner = map(int, dim.split(":"))
        if max((n, *inner)) >= value.dim():
            raise TypeError(f"a tensor of {value.dim()} dims")
        dense = inner and strides[n] == shape[inner[0]] * strides[inner[0]]
        words.append(inner[0] if dense else str(strides[n]))
    return strides_found(words)


def strides_name(dims: Iterable[tuple[int, int]]) -> str:
    """The name of a guard of strides: of each dim, and of (dim, other) that it is what the other
    takes; -1 for no other."""
    return " ".join(str(n) if inner < 0 else f"{n}:{inner}" for n, inner in dims)


def strides_found(strides: Iterable[str | int]) -> str:
    """The text for strides that are these numbers as texts, or are what these dims take."""
    words = [each if isinstance(each, str) else f"behind {each}" for each in strides]
    return f"strides {', '.join(words)}"


def flags_text(value: Any) -> str:
    """The class of a tensor, and whether it requires grad. TypeError for other values."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(name_of(type(value)))
    return f"{name_of(type(value))}{' grad' if value.requires_grad else ''}"


def is_about_layout(guard: Guard) -> bool:
    """Whether it is one of the four kinds."""
    return guard.kind in (LAYOUT, SIZE, STRIDES, FLAGS)
