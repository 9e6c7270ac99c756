"""Operators that write in place: into arguments, buffers, views and what was just made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.programs.builder import Builder, Unfit
from tests.programs.program import Ref, Slice

WRITES: list[Callable[[Builder], Any]] = []
"""Makers of one step each, that raise Unfit where there is nothing for them."""


def write(operator: Callable[[Builder], Any]) -> Callable[[Builder], Any]:
    """Puts an operator into the table."""
    WRITES.append(operator)
    return operator


def _is_plain(tensor: Tensor) -> bool:
    """No two elements in one place: what a write leaves there then does not hang on an order."""
    if tensor.numel() < 2:
        return True
    places = {0}
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        grown = {place + stride * at for place in places for at in range(size)}
        if len(grown) != len(places) * size:
            return False
        places = grown
    return True


def target(b: Builder, wanted: Callable[[Tensor], bool] = lambda t: True) -> str:
    """Something to write to, no parameter."""
    name = b.pick(lambda t: wanted(t) and _is_plain(t))
    parameters = {b.tensor(p).untyped_storage()._cdata for p in b.parameters}
    if b.tensor(name).untyped_storage()._cdata in parameters:
        raise Unfit("a parameter")
    return name


def source(b: Builder, name: str, exact: bool = False) -> str:
    """Something of the same dtype that can be written there, and lies elsewhere or just there."""
    into = b.tensor(name)

    def fits(tensor: Tensor) -> bool:
        if tensor.dtype != into.dtype or tensor.dim() > into.dim():
            return False
        ends = zip(reversed(tensor.shape), reversed(into.shape), strict=False)
        return all(mine in (1, theirs) for mine, theirs in ends)

    return b.pick(fits, exact)


NUMBERS = (0.0, -0.0, 1.0, -2.0, 0.5, 3.0)


def number(b: Builder, name: str) -> Any:
    """A number that the tensor's dtype holds."""
    value = b.rng.choice(NUMBERS)
    dtype = b.tensor(name).dtype
    if dtype == torch.bool:
        return bool(value)
    return value if dtype.is_floating_point else abs(int(value))


@write
def _with_a_number(b: Builder) -> str:
    name = target(b, lambda t: t.dtype != torch.bool)
    function = b.rng.choice(("add_", "sub_", "mul_", "clamp_min_", "clamp_max_", "fill_"))
    return b.step(f"Tensor.{function}", Ref(name), number(b, name))


@write
def _with_a_tensor(b: Builder) -> str:
    name = target(b)
    function = b.rng.choice(("add_", "sub_", "mul_", "copy_", "copy_"))
    return b.step(f"Tensor.{function}", Ref(name), Ref(source(b, name)))


@write
def _with_another_dtype(b: Builder) -> str:
    name = target(b, lambda t: t.is_floating_point())
    other = b.pick(lambda t: t.shape == b.tensor(name).shape)
    return b.step(f"Tensor.{b.rng.choice(('copy_', 'add_', 'mul_'))}", Ref(name), Ref(other))


@write
def _of_itself(b: Builder) -> str:
    name = target(b)
    exact = ("zero_", "relu_", "neg_", "abs_", "square_", "logical_not_")
    function = b.rng.choice((*exact, "sigmoid_", "exp_", "tanh_", "cumsum_"))
    args = (b.dim(name),) if function == "cumsum_" else ()
    return b.step(f"Tensor.{function}", Ref(name), *args, rounds=function not in exact)


@write
def _overlapping(b: Builder) -> str:
    """A write where every element in a place gets the same."""
    name = b.pick(lambda t: not _is_plain(t))
    function = b.rng.choice(("Tensor.fill_", "Tensor.zero_", "torch.masked_fill"))
    if function == "Tensor.zero_":
        return b.step(function, Ref(name))
    if function == "Tensor.fill_":
        return b.step(function, Ref(name), number(b, name))
    return b.step("operator.setitem", Ref(name), (Ellipsis,), number(b, name), names=0)


@write
def _slice(b: Builder) -> str:
    name = target(b, lambda t: t.dim() > 0)
    index: list[Any] = []
    for dim in range(b.rng.randint(1, b.tensor(name).dim())):
        size = b.size(name, dim)
        at = b.rng.choice((Slice(1), Slice(None, -1), Slice(None, None, 2), Slice(), 0, -1))
        index.append(at if size or isinstance(at, Slice) else Slice())
    if b.chance(2):
        return b.step("operator.setitem", Ref(name), tuple(index), number(b, name), names=0)
    piece = b.step("operator.getitem", Ref(name), tuple(index))
    if not b.chance(3):
        return b.step(f"Tensor.{b.rng.choice(('mul_', 'add_'))}", Ref(piece), number(b, name))
    value = source(b, piece)
    return b.step("operator.setitem", Ref(name), tuple(index), Ref(value), names=0)


@write
def _masked(b: Builder) -> str:
    name = target(b)
    into = b.tensor(name)
    mask = b.pick(lambda t: t.dtype == torch.bool and t.shape == into.shape)
    return b.step("Tensor.masked_fill_", Ref(name), Ref(mask), number(b, name))


@write
def _rows(b: Builder) -> str:
    """index_add_, index_copy_, index_fill_ and scatter_ with indices in range, each once."""
    name = target(b, lambda t: t.dim() > 0)
    dim = b.dim(name)
    size = b.size(name, dim)
    if size == 0:
        raise Unfit("empty")
    index = b.input(torch.int64, (1,), f"below {size}")
    value = b.step("torch.narrow", Ref(name), dim, b.rng.randrange(size), 1)
    value = b.step("torch.clone", Ref(value))
    function = b.rng.choice(("index_add_", "index_copy_", "index_fill_"))
    last = number(b, name) if function == "index_fill_" else Ref(value)
    return b.step(f"Tensor.{function}", Ref(name), dim, Ref(index), last)


@write
def _scatter(b: Builder) -> str:
    name = target(b, lambda t: t.dim() > 0)
    dim = b.dim(name)
    size = b.size(name, dim)
    if size == 0:
        raise Unfit("empty")
    index = b.input(torch.int64, b.shape(name), f"below {size}")
    return b.step("Tensor.scatter_", Ref(name), dim, Ref(index), number(b, name))


@write
def _index_put(b: Builder) -> str:
    name = target(b, lambda t: t.dim() > 0)
    size = b.size(name, 0)
    if size == 0:
        raise Unfit("empty")
    index = b.input(torch.int64, (b.rng.randint(1, 4),), f"below {size}")
    return b.step("operator.setitem", Ref(name), (Ref(index),), number(b, name), names=0)


@write
def _into(b: Builder) -> str:
    """An operator with `out=` that exists already."""
    name = target(b, lambda t: t.is_floating_point() and not t.requires_grad)
    other = b.pick(lambda t: t.dtype == b.tensor(name).dtype and t.shape == b.tensor(name).shape)
    return b.step("torch.add", Ref(other), number(b, name), out=Ref(name))


@write
def _turned(b: Builder) -> str:
    """Metadata written in place."""
    outside = {b.tensor(n).untyped_storage()._cdata for n in (*b.arguments, *b.buffers)}
    name = b.pick(lambda t: t.dim() == 2 and t.untyped_storage()._cdata not in outside)
    return b.step(b.rng.choice(("Tensor.t_", "Tensor.squeeze_")), Ref(name))
