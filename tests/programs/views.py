"""Views of a random program's tensors, and arguments that share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.programs.builder import Builder, Unfit
from tests.programs.program import Ref, SizeOf, Slice
from tests.programs.rounding import VIEWS as NO_NUMBERS

Operator = Callable[[Builder], Any]

VIEWS: list[Operator] = []
"""Makers of one step each, that raise Unfit where there is nothing for them."""

_ARGUMENTS: list[Operator] = []
"""Those that depend on nothing but their tensor: arguments are made with them too."""


def view(operator: Operator) -> Operator:
    """Puts an operator into the table."""
    VIEWS.append(operator)
    return operator


def _simple(maker: Callable[[Builder, str], tuple[Any, ...]]) -> Operator:
    """A view from its function and arguments behind the tensor."""

    def operator(b: Builder) -> str:
        name = b.pick()
        function, *args = maker(b, name)
        return b.step(function, Ref(name), *args)

    VIEWS.append(operator)
    _ARGUMENTS.append(maker)
    return operator


def alias_argument(b: Builder) -> None:
    """A new argument that is a view of an earlier one."""
    if not b.arguments:
        raise Unfit("no argument")
    name = b.rng.choice(b.arguments)
    function, *args = b.rng.choice(_ARGUMENTS)(b, name)
    if any(isinstance(value, SizeOf) for arg in args if isinstance(arg, tuple) for value in arg):
        raise Unfit("a size that only programs ask for")
    b.input_view(function, Ref(name), *args)


@_simple
def _as_strided(b: Builder, name: str) -> tuple[Any, ...]:
    tensors = [w.found[name] for w in b.worlds]
    room = min(t.untyped_storage().nbytes() // t.element_size() for t in tensors)
    sizes, strides, reach = [], [], 0
    for _ in range(b.rng.randint(0, 3)):
        size, stride = b.rng.choice((0, 1, 2, 3, 5)), b.rng.choice((0, 1, 1, 2, 3, 7))
        sizes.append(size)
        strides.append(stride)
        reach += max(size - 1, 0) * stride
    if reach >= room:
        raise Unfit("not enough memory")
    offset = b.rng.randrange(room - reach) if b.chance(2) else 0
    return "torch.as_strided", tuple(sizes), tuple(strides), offset


@_simple
def _select(b: Builder, name: str) -> tuple[Any, ...]:
    dim = b.dim(name)
    size = b.size(name, dim)
    if size == 0:
        raise Unfit("empty")
    return "torch.select", dim, b.rng.randrange(-size, size)


@_simple
def _slice(b: Builder, name: str) -> tuple[Any, ...]:
    rank = b.tensor(name).dim()
    if rank == 0:
        raise Unfit("a scalar")
    index = []
    for dim in range(b.rng.randint(1, rank)):
        size = b.size(name, dim)
        ends = [None, *range(-size, size + 1)]
        step = b.rng.choice((None, None, 1, 2, 3))
        index.append(
            b.rng.choice(
                (Slice(), Slice(b.rng.choice(ends), b.rng.choice(ends), step), Slice(None, None, 2))
            )
        )
    if b.chance(6):
        index.insert(b.rng.randint(0, len(index)), None)
    return "operator.getitem", tuple(index)


@_simple
def _narrow(b: Builder, name: str) -> tuple[Any, ...]:
    dim = b.dim(name)
    start = b.rng.randint(0, b.size(name, dim))
    return "torch.narrow", dim, start, b.rng.randint(0, b.size(name, dim) - start)


@_simple
def _unfold(b: Builder, name: str) -> tuple[Any, ...]:
    dim = b.dim(name)
    return "Tensor.unfold", dim, b.rng.randint(1, max(b.size(name, dim), 1)), b.rng.randint(1, 3)


@_simple
def _diagonal(b: Builder, name: str) -> tuple[Any, ...]:
    return "torch.diagonal", b.rng.randint(-2, 2), b.dim(name), b.dim(name)


@_simple
def _squeeze(b: Builder, name: str) -> tuple[Any, ...]:
    return ("torch.squeeze",) if b.chance(3) else ("torch.squeeze", b.dim(name))


@_simple
def _unsqueeze(b: Builder, name: str) -> tuple[Any, ...]:
    rank = b.tensor(name).dim()
    return "torch.unsqueeze", b.rng.randint(-rank - 1, rank)


@_simple
def _permute(b: Builder, name: str) -> tuple[Any, ...]:
    rank = b.tensor(name).dim()
    return "torch.permute", tuple(b.rng.sample(range(rank), rank))


@_simple
def _transpose(b: Builder, name: str) -> tuple[Any, ...]:
    return "torch.transpose", b.dim(name), b.dim(name)


@_simple
def _expand(b: Builder, name: str) -> tuple[Any, ...]:
    shape = b.tensor(name).shape
    sizes = tuple(b.rng.choice((-1, 2, 3, 65)) if s == 1 else -1 for s in shape)
    front = tuple(b.rng.choice((1, 2, 3)) for _ in range(b.rng.randint(0, 2)))
    return "Tensor.expand", (*front, *sizes)


@_simple
def _flatten(b: Builder, name: str) -> tuple[Any, ...]:
    first, last = sorted(b.dim(name) % b.tensor(name).dim() for _ in range(2))
    return "torch.flatten", first, last


@_simple
def _shape(b: Builder, name: str) -> tuple[Any, ...]:
    """view or reshape, with one -1: dims merged, or a size split."""
    sizes: list[Any] = list(b.shape_in_program(name))
    if len(sizes) > 1 and b.chance(2):
        at = b.rng.randrange(len(sizes) - 1)
        sizes[at : at + 2] = [-1]
    elif sizes:
        at = b.rng.randrange(len(sizes))
        divisors = [k for k in (1, 2, 3, 5) if all(
            w.found[name].size(at) % k == 0 for w in b.worlds)]  # fmt: skip
        parts = [b.rng.choice(divisors), -1]
        b.rng.shuffle(parts)
        sizes[at : at + 1] = parts
    else:
        sizes = [1]
    if any(isinstance(size, SizeOf) for size in sizes) and b.chance(8):
        raise Unfit("often enough")
    return b.rng.choice(("Tensor.view", "torch.reshape", "torch.reshape")), tuple(sizes)


@view
def _flip(b: Builder) -> str:
    name = b.pick()
    return b.step("torch.flip", Ref(name), (b.dim(name),))


@view
def _split(b: Builder) -> str:
    name = b.pick()
    dim = b.dim(name)
    sizes = {w.found[name].size(dim) for w in b.worlds}
    if len(sizes) > 1:
        raise Unfit("as many parts as the size says")
    (size,) = sizes
    if size < 2:
        raise Unfit("one part")
    first = b.rng.randint(1, size - 1)
    return b.step("torch.split", Ref(name), (first, size - first), dim, names=2)


@view
def _unbind(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    dim = b.dim(name)
    sizes = {w.found[name].size(dim) for w in b.worlds}
    if len(sizes) > 1 or not 2 <= next(iter(sizes)) <= 5:
        raise Unfit("as many parts as the size says")
    return b.step("torch.unbind", Ref(name), dim, names=next(iter(sizes)))


@view
def _bits(b: Builder) -> str:
    name = b.pick(lambda t: t.dtype in (torch.float32, torch.int32), exact=True)
    other = torch.int32 if b.tensor(name).dtype == torch.float32 else torch.float32
    return b.step("Tensor.view", Ref(name), other)


@view
def _like(b: Builder) -> str:
    name, other = b.pick(), b.pick()
    function = b.rng.choice(("Tensor.expand_as", "Tensor.view_as", "Tensor.reshape_as"))
    return b.step(function, Ref(name), Ref(other))


@view
def _same(b: Builder) -> str:
    function = b.rng.choice(("Tensor.contiguous", "Tensor.detach", "torch.clone", "torch.ravel"))
    return b.step(function, Ref(b.pick()))


@view
def _index_with_none(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    return b.step("operator.getitem", Ref(name), (None, Ellipsis, b.rng.choice((0, -1, None))))


@view
def _rolled(b: Builder) -> str:
    name = b.pick()
    return b.step("torch.roll", Ref(name), b.rng.randint(-3, 3), b.dim(name))


@view
def _moved(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 1)
    return b.step("torch.movedim", Ref(name), b.dim(name), b.dim(name))


NO_NUMBERS.update(
    f"{owner}.{name}"
    for owner, names in {
        "torch": "as_strided select narrow diagonal squeeze unsqueeze permute transpose flatten "
        "reshape flip split unbind clone ravel roll movedim",
        "Tensor": "unfold expand view expand_as view_as reshape_as contiguous detach",
        "operator": "getitem",
    }.items()
    for name in names.split()
)
