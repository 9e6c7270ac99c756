"""Operators that models are made of: attention, convolutions, norms, indices, losses, resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.programs.builder import FLOATS, INTEGERS, Builder, Unfit
from tests.programs.program import Ref, Slice

LAYERS: list[Callable[[Builder], Any]] = []
"""Makers of one step or a few, that raise Unfit where there is nothing for them."""


def layer(maker: Callable[[Builder], Any]) -> Callable[[Builder], Any]:
    """Puts an operator into the table."""
    LAYERS.append(maker)
    return maker


def _floats(*ranks: int) -> Callable[[Tensor], bool]:
    return lambda t: t.is_floating_point() and t.dim() in ranks


def _numbers(tensor: Tensor) -> bool:
    return tensor.dim() > 0 and tensor.dtype != torch.bool


def _image(b: Builder, rank: int) -> str:
    """Images of `rank` dims, with channels: some that are there, else a new input."""
    if b.chance(3):
        return b.pick(_floats(rank + 2))
    sides = (b.rng.choice((1, 3, 5, 9)) for _ in range(rank))
    shape = (b.rng.choice((1, 2)), b.rng.choice((1, 3, 4, 8)), *sides)
    return b.input(b.rng.choice((torch.float32, *FLOATS)), shape, b.rng.choice(("whole", "normal")))


def _weight(b: Builder, dtype: torch.dtype, *shape: int) -> Ref:
    kind = b.rng.choice(("argument", "parameter", "parameter", "buffer"))
    return Ref(b.input(dtype, shape, b.rng.choice(("whole", "whole", "normal")), kind))


def _maybe(b: Builder, make: Callable[[], Any]) -> Any:
    return make() if b.chance(2) else None


# ---- attention ------------------------------------------------------------------------------


@layer
def _masked_softmax(b: Builder) -> str:
    name = b.pick(_floats(2, 3, 4))
    *_, rows, columns = b.shape(name)
    mask = b.input(torch.bool, (rows, columns), "whole")
    fill = b.rng.choice((float("-inf"), -1e4))
    hidden = b.step("torch.masked_fill", Ref(name), Ref(mask), fill)
    return b.step("torch.softmax", Ref(hidden), -1, rounds=True)


@layer
def _attention(b: Builder) -> str:
    name = b.pick(_floats(3, 4))
    mine = b.tensor(name)
    *batch, rows, width = b.shape(name)
    keys = b.rng.choice((1, 3, 17))
    key = b.input(mine.dtype, (*batch, keys, width), b.rng.choice(("whole", "normal")))
    value = b.input(mine.dtype, (*batch, keys, b.rng.choice((1, 8))), "normal")
    options: dict[str, Any] = {}
    kind = b.rng.choice(("none", "bool", "added", "causal"))
    if kind == "bool":
        options["attn_mask"] = Ref(b.input(torch.bool, (rows, keys), "whole"))
    elif kind == "added":
        options["attn_mask"] = Ref(b.input(mine.dtype, (1,) * (len(batch) - 1) + (rows, keys),
                                           "masked"))  # fmt: skip
    elif kind == "causal":
        options["is_causal"] = True
    if b.chance(3):
        options["scale"] = b.rng.choice((0.5, 1.0))
    args = (Ref(name), Ref(key), Ref(value))
    return b.step("F.scaled_dot_product_attention", *args, rounds=True, **options)


@layer
def _embedding(b: Builder) -> str:
    size, width = b.rng.choice((1, 5, 17)), b.rng.choice((1, 3, 8))
    dtype = b.rng.choice(FLOATS)
    shape = tuple(b.rng.choice((0, 1, 3, 5)) for _ in range(b.rng.randint(0, 2)))
    index = b.input(b.rng.choice((torch.int64, torch.int32)), shape, f"below {size}")
    padding = b.rng.choice((None, None, 0, -1))
    return b.step("F.embedding", Ref(index), _weight(b, dtype, size, width), padding)


# ---- convolutions and images ----------------------------------------------------------------


@layer
def _convolution(b: Builder) -> str:
    rank = b.rng.choice((1, 2))
    name = _image(b, rank)
    mine, channels = b.tensor(name), b.size(name, 1)
    if channels == 0 or b.shape(name)[1] != channels:
        raise Unfit("channels that vary")
    groups = channels if b.chance(3) else 1
    side = [b.rng.choice((1, 2, 3)) for _ in range(rank)]
    stride, padding = b.rng.choice((1, 1, 2)), b.rng.choice((0, 1, 2))
    dilation = b.rng.choice((1, 1, 2))
    if b.chance(3):
        out = b.rng.choice((1, 4))
        weight = _weight(b, mine.dtype, channels, out, *side)
        bias = _maybe(b, lambda: _weight(b, mine.dtype, out * groups))
        args = (stride, padding, b.rng.randrange(stride), groups, dilation)
        function = f"F.conv_transpose{rank}d"
        return b.step(function, Ref(name), weight, bias, *args, rounds=True)
    out = groups * b.rng.choice((1, 2))
    weight = _weight(b, mine.dtype, out, channels // groups, *side)
    bias = _maybe(b, lambda: _weight(b, mine.dtype, out))
    args = (stride, padding, dilation, groups)
    return b.step(f"F.conv{rank}d", Ref(name), weight, bias, *args, rounds=True)


@layer
def _resized(b: Builder) -> str:
    rank = b.rng.choice((1, 2))
    name = _image(b, rank)
    mode = b.rng.choice(("nearest", "nearest-exact", "linear" if rank == 1 else "bilinear"))
    options: dict[str, Any] = {"mode": mode}
    if "linear" in mode:
        options["align_corners"] = bool(b.rng.randrange(2))
    if b.chance(2):
        options["scale_factor"] = b.rng.choice((2.0, 0.5, 1.5))
    else:
        options["size"] = tuple(b.rng.choice((1, 3, 8)) for _ in range(rank))
    return b.step("F.interpolate", Ref(name), rounds="linear" in mode, **options)


@layer
def _padded(b: Builder) -> str:
    rank = b.rng.choice((1, 2))
    name = _image(b, rank)
    ends = tuple(b.rng.choice((0, 1, 2)) for _ in range(2 * rank))
    return b.step("F.pad", Ref(name), ends, mode=b.rng.choice(("reflect", "replicate", "circular")))


@layer
def _pooled(b: Builder) -> str:
    rank = b.rng.choice((1, 2))
    name = _image(b, rank)
    kind = b.rng.choice(("max", "avg", "adaptive_avg", "indices"))
    if kind == "adaptive_avg":
        size = tuple(b.rng.choice((1, 2, 3)) for _ in range(rank))
        return b.step(f"F.adaptive_avg_pool{rank}d", Ref(name), size, rounds=True)
    args = (b.rng.choice((2, 3)), b.rng.choice((1, 2)), b.rng.choice((0, 1)))
    if kind == "avg":
        return b.step(f"F.avg_pool{rank}d", Ref(name), *args, rounds=True)
    if kind == "max":
        return b.step(f"F.max_pool{rank}d", Ref(name), *args)
    function = f"F.max_pool{rank}d"
    return b.step(function, Ref(name), *args, return_indices=True, names=2)


@layer
def _pixels(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() == 4)
    return b.step(f"F.pixel_{b.rng.choice(('shuffle', 'unshuffle'))}", Ref(name), 2)


# ---- norms ----------------------------------------------------------------------------------


@layer
def _group_norm(b: Builder) -> str:
    name = _image(b, 2) if b.chance(3) else b.pick(_floats(2, 3, 4))
    channels = b.size(name, 1)
    if b.shape(name)[1] != channels:
        raise Unfit("channels that vary")
    groups = b.rng.choice([n for n in (1, 2, 5, channels) if n and channels % n == 0] or [1])
    weight, bias = (_maybe(b, lambda: _weight(b, b.tensor(name).dtype, channels)) for _ in "wb")
    return b.step("F.group_norm", Ref(name), groups, weight, bias, rounds=True)


@layer
def _batch_norm(b: Builder) -> str:
    name = _image(b, 2) if b.chance(3) else b.pick(_floats(2, 3, 4))
    channels = b.size(name, 1)
    if b.shape(name)[1] != channels:
        raise Unfit("channels that vary")
    dtype = b.tensor(name).dtype
    weight, bias = (_maybe(b, lambda: _weight(b, dtype, channels)) for _ in "wb")
    if b.chance(3):
        args: tuple[Any, ...] = (None, None, weight, bias, True)
        return b.step("F.batch_norm", Ref(name), *args, rounds=True)
    mean = Ref(b.input(dtype, (channels,), "whole", "buffer"))
    variance = Ref(b.input(dtype, (channels,), "ties", "buffer"))
    args = (mean, variance, weight, bias, False)
    return b.step("F.batch_norm", Ref(name), *args, rounds=True)


@layer
def _layer_norm(b: Builder) -> str:
    name = b.pick(_floats(2, 3, 4))
    shape = b.shape(name)[-b.rng.randint(1, 2) :]
    if any(isinstance(size, Ref) for size in shape):
        raise Unfit("a size that differs")
    weight, bias = (_maybe(b, lambda: _weight(b, b.tensor(name).dtype, *shape)) for _ in "wb")
    return b.step("F.layer_norm", Ref(name), shape, weight, bias, rounds=True)


# ---- order and indices ----------------------------------------------------------------------


@layer
def _largest(b: Builder) -> str:
    name = b.pick(_numbers, exact=True)
    dim = b.dim(name)
    function = b.rng.choice(("topk", "sort", "argsort", "kthvalue", "median"))
    if function == "topk":
        count = b.rng.randint(0, b.size(name, dim))
        return b.step("torch.topk", Ref(name), count, dim, bool(b.rng.randrange(2)), names=2)
    if function == "kthvalue":
        count = b.rng.randint(1, max(1, b.size(name, dim)))
        return b.step("torch.kthvalue", Ref(name), count, dim, names=2)
    if function == "median":
        return b.step("torch.median", Ref(name), dim, names=2)
    down = bool(b.rng.randrange(2))
    if function == "argsort":
        return b.step("torch.argsort", Ref(name), dim=dim, descending=down, stable=True)
    return b.step("torch.sort", Ref(name), dim=dim, descending=down, stable=True, names=2)


@layer
def _put(b: Builder) -> str:
    """index_put, with places that come up twice where what is there is added to."""
    name = b.pick(_numbers)
    size, count = b.size(name, 0), b.rng.choice((1, 3, 5))
    if size == 0:
        raise Unfit("empty")
    index = Ref(b.input(torch.int64, (count,), f"below {size}"))
    rows = b.step("operator.getitem", Ref(name), (index,))
    function = b.rng.choice(("torch.index_put", "Tensor.index_put_"))
    target = name if function == "torch.index_put" else b.step("torch.clone", Ref(name))
    return b.step(function, Ref(target), (index,), Ref(rows), True, rounds=True)


@layer
def _reduced_by_place(b: Builder) -> str:
    name = b.pick(_numbers, exact=True)
    dim = b.dim(name)
    size = b.size(name, dim)
    if size == 0:
        raise Unfit("empty")
    index = Ref(b.input(torch.int64, b.shape(name), f"below {size}"))
    function = b.rng.choice(("sum", "amax", "amin", "mean", "prod"))
    into = b.step("torch.clone", Ref(name))
    inside = bool(b.rng.randrange(2))
    args = (Ref(into), dim, index, Ref(name), function)
    rounds = function in ("sum", "mean", "prod")
    return b.step("torch.scatter_reduce", *args, include_self=inside, rounds=rounds)


@layer
def _two_indices(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 1)
    sizes = [b.size(name, dim) for dim in (0, 1)]
    if 0 in sizes:
        raise Unfit("empty")
    shapes = b.rng.choice((((3,), (3,)), ((3, 1), (2,)), ((), (4,))))
    indices = [Ref(b.input(torch.int64, shape, f"below {size}"))
               for shape, size in zip(shapes, sizes, strict=True)]  # fmt: skip
    if b.chance(3) and b.tensor(name).dim() > 2:
        return b.step("operator.getitem", Ref(name), (indices[0], Slice(), 0))
    return b.step("operator.getitem", Ref(name), tuple(indices))


@layer
def _looked_up(b: Builder) -> str:
    name = b.pick(lambda t: t.dtype in (torch.float32, torch.int64), exact=True)
    edges = b.step("torch.arange", -3, 4, 2)
    edges = b.step("Tensor.to", Ref(edges), b.tensor(name).dtype)
    return b.step("torch.bucketize", Ref(name), Ref(edges), right=bool(b.rng.randrange(2)))


@layer
def _one_hot(b: Builder) -> str:
    index = b.input(torch.int64, (b.rng.choice((1, 4)), b.rng.choice((1, 3))), "below 5")
    return b.step("F.one_hot", Ref(index), 5)


# ---- arithmetic -----------------------------------------------------------------------------


@layer
def _division(b: Builder) -> str:
    """Of integers and floats by tensors, negative ones too."""
    name = b.pick(_numbers, exact=True)
    dtype = b.tensor(name).dtype
    *_, last = b.shape(name)
    ones = b.input(dtype, (last,), "ties")
    by = b.step("torch.add", Ref(ones), b.rng.choice((1, 2) if dtype == torch.uint8 else (1, -3)))
    function = b.rng.choice(("floor_divide", "remainder", "fmod", "div", "trunc"))
    if function in ("div", "trunc"):
        mode = "floor" if function == "div" else "trunc"
        return b.step("torch.div", Ref(name), Ref(by), rounding_mode=mode)
    return b.step(f"torch.{function}", Ref(name), Ref(by))


@layer
def _chosen(b: Builder) -> str:
    name = b.pick(_numbers)
    *_, last = b.shape(name)
    mask = b.input(torch.bool, (last,), "whole")
    other = b.input(b.rng.choice((*FLOATS, *INTEGERS)), (1,), "special")
    args = (Ref(name), Ref(other))
    return b.step("torch.where", Ref(mask), *(args if b.chance(2) else args[::-1]))


@layer
def _narrow_chain(b: Builder) -> str:
    """A few operators in a half type: each rounds what the one before it gave."""
    name = b.step("Tensor.to", Ref(b.pick()), b.rng.choice((torch.bfloat16, torch.float16)))
    for _ in range(b.rng.randint(2, 4)):
        function = b.rng.choice(("mul", "add", "sub", "div", "sigmoid", "tanh", "square"))
        args: tuple[Any, ...] = ()
        if function in ("mul", "add", "sub", "div"):
            args = (b.rng.choice((1.1, 3, -0.7)),)
        name = b.step(f"torch.{function}", Ref(name), *args, rounds=True)
    return name


@layer
def _clamped(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() > 0)
    *_, last = b.shape(name)
    low, high = (Ref(b.input(b.tensor(name).dtype, (last,), "whole")) for _ in "lh")
    return b.step("torch.clamp", Ref(name), *b.rng.choice(((low, high), (None, high), (low, None))))


@layer
def _gated(b: Builder) -> str:
    name = b.pick(_floats(1, 2, 3, 4))
    function = b.rng.choice(("F.glu", "torch.chunk"))
    dim = b.dim(name)
    if function == "F.glu":
        return b.step("F.glu", Ref(name), dim, rounds=True)
    if b.size(name, dim) % 2 or len({w.found[name].size(dim) for w in b.worlds}) > 1:
        raise Unfit("odd")
    halves = b.step("torch.chunk", Ref(name), 2, dim, names=2)
    other = halves[:-1] + "b"
    gate = b.step("F.silu", Ref(halves), rounds=True)
    return b.step("torch.mul", Ref(gate), Ref(other), rounds=True)


@layer
def _differences(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0 and t.dtype != torch.bool)
    function = b.rng.choice(("diff", "flip", "rot90", "outer", "trapezoid"))
    if function == "outer":
        flat = b.step("torch.flatten", Ref(name))
        few = b.step("operator.getitem", Ref(flat), (Slice(0, 5),))
        return b.step("torch.outer", Ref(few), Ref(few))
    if function == "trapezoid":
        return b.step("torch.trapezoid", Ref(name), dim=b.dim(name), rounds=True)
    if function == "diff":
        return b.step("torch.diff", Ref(name), 1, b.dim(name))
    if function == "rot90":
        return b.step("torch.rot90", Ref(name), b.rng.randint(-1, 2), (0, 1))
    return b.step("torch.flip", Ref(name), (b.dim(name),))


# ---- products and losses --------------------------------------------------------------------


@layer
def _einsum(b: Builder) -> str:
    name = b.pick(_floats(2, 3))
    mine = b.tensor(name)
    *_, width = b.shape(name)
    if isinstance(width, Ref):
        raise Unfit("a size that differs")
    equation, shape = b.rng.choice(
        (("...ij,jk->...ik", (width, 3)), ("...ij,kj->...ki", (3, width)),
         ("...ij,j->...i", (width,)), ("...ij,j->...ij", (width,)), ("...ij,kj->...jk", (2, width)))
    )  # fmt: skip
    other = _weight(b, mine.dtype, *shape)
    return b.step("torch.einsum", equation, Ref(name), other, rounds=True)


@layer
def _added_product(b: Builder) -> str:
    name = b.pick(_floats(2))
    mine = b.tensor(name)
    width, out = b.shape(name)[-1], b.rng.choice((1, 3, 8))
    if isinstance(width, Ref):
        raise Unfit("a size that differs")
    weight = _weight(b, mine.dtype, width, out)
    added = _weight(b, mine.dtype, out)
    options = {"beta": b.rng.choice((1, 0.5, 0)), "alpha": b.rng.choice((1, -2))}
    return b.step("torch.addmm", added, Ref(name), weight, rounds=True, **options)


@layer
def _loss(b: Builder) -> str:
    name = b.pick(_floats(2))
    rows, classes = b.shape(name)
    reduction = b.rng.choice(("mean", "sum", "none"))
    function = b.rng.choice(("cross_entropy", "mse_loss", "smooth_l1_loss", "kl_div"))
    if function == "cross_entropy":
        if isinstance(classes, Ref) or classes == 0:
            raise Unfit("classes that vary")
        target = b.input(torch.int64, (rows,), f"below {classes}")
        smooth = b.rng.choice((0.0, 0.1))
        return b.step("F.cross_entropy", Ref(name), Ref(target), reduction=reduction,
                      label_smoothing=smooth, rounds=True)  # fmt: skip
    other = b.input(b.tensor(name).dtype, b.shape(name), "normal")
    return b.step(f"F.{function}", Ref(name), Ref(other), reduction=reduction, rounds=True)


@layer
def _cosine(b: Builder) -> str:
    name = b.pick(_floats(2, 3))
    other = b.input(b.tensor(name).dtype, b.shape(name), "normal")
    return b.step("F.cosine_similarity", Ref(name), Ref(other), b.dim(name), rounds=True)
