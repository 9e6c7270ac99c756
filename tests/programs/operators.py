"""Operators that compute: pointwise, reductions, scans, indices, products, norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.programs.builder import FLOATS, INTEGERS, Builder, Unfit
from tests.programs.program import Ref, SizeOf

OPERATORS: list[Callable[[Builder], Any]] = []
"""Makers of one step or a few, that raise Unfit where there is nothing for them."""


def operator(weight: int = 1) -> Callable[[Callable[[Builder], Any]], Callable[[Builder], Any]]:
    """Puts an operator into the table, as often as its weight says."""

    def put(maker: Callable[[Builder], Any]) -> Callable[[Builder], Any]:
        OPERATORS.extend([maker] * weight)
        return maker

    return put


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def partner(b: Builder, name: str, any_dtype: bool = False, exact: bool = False) -> str:
    """A tensor that broadcasts with the one named: one that is there, else a new input."""
    mine = b.tensor(name)

    def fits(tensor: Tensor) -> bool:
        ends = zip(reversed(tensor.shape), reversed(mine.shape), strict=False)
        return (any_dtype or tensor.dtype == mine.dtype) and all(
            a == c or 1 in (a, c) for a, c in ends
        )

    if not b.chance(4):
        return b.pick(fits, exact)
    shape = [1 if b.chance(4) else size for size in b.shape(name)]
    dtype = mine.dtype if not any_dtype else b.rng.choice((*FLOATS, *INTEGERS))
    fill = b.rng.choice(("whole", "special", "normal", "ties"))
    return b.input(dtype, shape[b.rng.randint(0, len(shape)) if b.chance(4) else 0 :], fill)


# ---- pointwise ------------------------------------------------------------------------------

EXACT = "neg abs relu square clone isnan isinf isfinite signbit logical_not nan_to_num positive"
STEPPING = "floor ceil trunc round sign frac"
ROUNDING = (
    "exp log sqrt rsqrt sin cos tan tanh sigmoid erf reciprocal log1p expm1 log2 exp2 atan asinh "
    "sinh cosh erfc"
)
ACTIVATIONS = "gelu silu softplus elu leaky_relu hardswish hardtanh mish logsigmoid relu6 selu"


@operator(4)
def _unary(b: Builder) -> str:
    return b.step(f"torch.{b.rng.choice(EXACT.split())}", Ref(b.pick()))


@operator()
def _stepping(b: Builder) -> str:
    return b.step(f"torch.{b.rng.choice(STEPPING.split())}", Ref(b.pick(exact=True)))


@operator(3)
def _rounding(b: Builder) -> str:
    return b.step(f"torch.{b.rng.choice(ROUNDING.split())}", Ref(b.pick()), rounds=True)


@operator(2)
def _activation(b: Builder) -> str:
    return b.step(f"F.{b.rng.choice(ACTIVATIONS.split())}", Ref(b.pick(_is_float)), rounds=True)


@operator(6)
def _binary(b: Builder) -> str:
    name = b.pick()
    function = b.rng.choice("add sub mul maximum minimum add mul div copysign hypot".split())
    other = partner(b, name, any_dtype=b.chance(3))
    rounds = function in ("div", "hypot")
    return b.step(f"torch.{function}", Ref(name), Ref(other), rounds=rounds)


@operator(2)
def _with_a_number(b: Builder) -> str:
    name = b.pick()
    function = b.rng.choice("add sub mul div rsub pow maximum".split())
    if function == "maximum":
        return b.step("torch.clamp", Ref(name), -1, b.rng.choice((None, 2)))
    value = b.rng.choice((2, -1, 0.5, 3, 1.5)) if function != "pow" else b.rng.choice((2, 3, 0.5))
    return b.step(f"torch.{function}", Ref(name), value, rounds=function in ("div", "pow"))


@operator(2)
def _comparison(b: Builder) -> str:
    name = b.pick(exact=True)
    function = b.rng.choice("eq ne lt le gt ge logical_and logical_or logical_xor".split())
    other = Ref(partner(b, name, b.chance(3), exact=True)) if b.chance(2) else 0
    if other == 0 and "logical" in function:
        raise Unfit("a number")
    return b.step(f"torch.{function}", Ref(name), other)


@operator()
def _bits(b: Builder) -> str:
    name = b.pick(lambda t: not t.is_floating_point())
    other = partner(b, name)
    return b.step(f"torch.bitwise_{b.rng.choice(('and', 'or', 'xor'))}", Ref(name), Ref(other))


@operator()
def _shift(b: Builder) -> str:
    name = b.pick(lambda t: t.dtype in INTEGERS)
    function = b.rng.choice(("bitwise_left_shift", "bitwise_right_shift"))
    return b.step(f"torch.{function}", Ref(name), b.rng.randint(0, 7))


@operator()
def _divisions(b: Builder) -> str:
    name = b.pick(exact=True)
    value = b.rng.choice((2, 3, -3, 7)) if b.tensor(name).dtype != torch.uint8 else 3
    function = b.rng.choice(("floor_divide", "remainder", "fmod"))
    if b.chance(3):
        mode = b.rng.choice(("floor", "trunc"))
        return b.step("torch.div", Ref(name), value, rounding_mode=mode)
    return b.step(f"torch.{function}", Ref(name), value)


@operator(2)
def _where(b: Builder) -> str:
    name = b.pick()
    mask = b.pick(lambda t: t.dtype == torch.bool and t.shape == b.tensor(name).shape)
    if b.chance(2):
        fill = 0 if not b.tensor(name).is_floating_point() else b.rng.choice((0.0, -math.inf))
        return b.step("torch.masked_fill", Ref(name), Ref(mask), fill)
    return b.step("torch.where", Ref(mask), Ref(name), Ref(partner(b, name, b.chance(3))))


@operator(3)
def _cast(b: Builder) -> str:
    dtype = b.rng.choice((*FLOATS, *INTEGERS, torch.bool))
    if dtype.is_floating_point:
        return b.step("Tensor.to", Ref(b.pick()), dtype)
    name = b.pick(exact=True)
    if b.tensor(name).is_floating_point() and dtype != torch.bool:
        # What a float outside of the integers becomes is left open by C++, and differs.
        name = b.step("torch.nan_to_num", Ref(name), 3.0)
        name = b.step("torch.clamp", Ref(name), 0 if dtype == torch.uint8 else -90, 90)
    return b.step("Tensor.to", Ref(name), dtype)


@operator()
def _three(b: Builder) -> str:
    name = b.pick(_is_float)
    function = b.rng.choice(("addcmul", "lerp", "addcdiv"))
    second = partner(b, name)
    third: Any = Ref(partner(b, name)) if function != "lerp" else 0.5
    return b.step(f"torch.{function}", Ref(name), Ref(second), third, rounds=True)


# ---- reductions and scans -------------------------------------------------------------------


def _dims(b: Builder, name: str) -> tuple[Any, ...]:
    """No dim, one, or several, and perhaps keepdim."""
    rank = b.tensor(name).dim()
    if rank == 0 or b.chance(6):
        return ()
    dims = b.rng.sample(range(rank), b.rng.randint(1, min(2, rank)))
    turned = tuple(dim - rank * b.rng.randint(0, 1) for dim in dims)
    return (turned if len(turned) > 1 else turned[0], bool(b.rng.randint(0, 1)))


@operator(5)
def _reduction(b: Builder) -> str:
    name = b.pick()
    function = b.rng.choice("sum sum mean amax amin nansum".split())
    args = _dims(b, name)
    rounds = function in ("mean", "sum", "nansum") and not _is_whole(b, name)
    return b.step(f"torch.{function}", Ref(name), *args, rounds=rounds)


def _is_whole(b: Builder, name: str) -> bool:
    """Whether all are so small whole numbers that sums of them are exact in any order."""
    values = (w.found[name].detach().double() for w in b.worlds)
    return all(bool(((v == v.round()) & (v.abs() <= 64)).all()) for v in values)


@operator(2)
def _extremes(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0, exact=True)
    function = b.rng.choice("max min cummax cummin sort".split())
    if function == "sort":
        dim = b.dim(name)
        return b.step("torch.sort", Ref(name), dim=dim, stable=True, names=2)
    keep = (True,) if b.chance(2) and not function.startswith("cum") else ()
    return b.step(f"torch.{function}", Ref(name), b.dim(name), *keep, names=2)


@operator(2)
def _counts(b: Builder) -> str:
    name = b.pick(exact=True)
    function = b.rng.choice("argmax argmin any all count_nonzero".split())
    args = (b.dim(name),) if b.tensor(name).dim() and not b.chance(4) else ()
    return b.step(f"torch.{function}", Ref(name), *args)


@operator(2)
def _statistics(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() > 0)
    function = b.rng.choice("var std prod logsumexp norm var_mean".split())
    dim = b.dim(name)
    if function in ("var", "std"):
        correction = b.rng.choice((0, 1))
        return b.step(f"torch.{function}", Ref(name), dim, correction=correction, rounds=True)
    if function == "var_mean":
        return b.step("torch.var_mean", Ref(name), dim, correction=0, names=2, rounds=True)
    if function == "norm":
        args: tuple[Any, ...] = (b.rng.choice((1.0, 2.0, math.inf, 3.0)), dim)
        return b.step("torch.norm", Ref(name), *args, rounds=True)
    return b.step(f"torch.{function}", Ref(name), dim, rounds=True)


@operator(2)
def _scan(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    function = b.rng.choice("cumsum cumsum cumprod logcumsumexp".split())
    return b.step(f"torch.{function}", Ref(name), b.dim(name), rounds=not _is_whole(b, name))


@operator(3)
def _softmax(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() > 0)
    function = b.rng.choice(("softmax", "log_softmax"))
    return b.step(f"torch.{function}", Ref(name), b.dim(name), rounds=True)


# ---- indices --------------------------------------------------------------------------------


@operator(3)
def _gather(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    dim = b.dim(name)
    size = b.size(name, dim)
    if size == 0:
        raise Unfit("empty")
    below = f"below {size}"
    kind = b.rng.choice(("gather", "index_select", "index", "take", "scatter_add", "index_add"))
    if kind == "gather":
        index = b.input(torch.int64, b.shape(name), below)
        return b.step("torch.gather", Ref(name), dim, Ref(index))
    few = b.input(torch.int64, (b.rng.choice((0, 1, 3)),), below)
    if kind == "index_select":
        return b.step("torch.index_select", Ref(name), dim, Ref(few))
    if kind == "take":
        return b.step("torch.take", Ref(name), Ref(few))
    if kind == "index":
        if dim % b.tensor(name).dim():
            raise Unfit("another dim")
        return b.step("operator.getitem", Ref(name), (Ref(few),))
    if kind == "index_add":
        rows = b.step("torch.index_select", Ref(name), dim, Ref(few))
        return b.step("torch.index_add", Ref(name), dim, Ref(few), Ref(rows), rounds=True)
    index = b.input(torch.int64, b.shape(name), below)
    return b.step("torch.scatter_add", Ref(name), dim, Ref(index), Ref(name), rounds=True)


@operator(2)
def _joined(b: Builder) -> str:
    name = b.pick()
    function = b.rng.choice(("cat", "stack"))
    other = b.pick(lambda t: t.shape == b.tensor(name).shape)
    rank = b.tensor(name).dim() + (function == "stack")
    if rank == 0:
        raise Unfit("a scalar")
    dim = b.rng.randrange(-rank, rank)
    return b.step(f"torch.{function}", (Ref(name), Ref(other)), dim)


@operator()
def _copies(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    function = b.rng.choice(("repeat", "repeat_interleave", "tril", "triu", "pad"))
    if function == "repeat":
        times = tuple(b.rng.choice((1, 2)) for _ in b.tensor(name).shape)
        return b.step("Tensor.repeat", Ref(name), times)
    if function == "repeat_interleave":
        return b.step("torch.repeat_interleave", Ref(name), 2, dim=b.dim(name))
    if function == "pad":
        ends = tuple(b.rng.choice((0, 1, 2, -1)) for _ in range(2))
        return b.step("F.pad", Ref(name), ends)
    return b.step(f"torch.{function}", Ref(name), b.rng.randint(-1, 1))


@operator()
def _made(b: Builder) -> str:
    name = b.pick(lambda t: t.dim() > 0)
    function = b.rng.choice(("zeros_like", "ones_like", "arange", "full_like", "new_zeros"))
    if function == "arange":
        return b.step("torch.arange", SizeOf(name, b.dim(name)))
    if function == "full_like":
        return b.step("torch.full_like", Ref(name), 2)
    if function == "new_zeros":
        return b.step("Tensor.new_zeros", Ref(name), (SizeOf(name, b.dim(name)), 3))
    return b.step(f"torch.{function}", Ref(name))


# ---- products and norms ---------------------------------------------------------------------


def _kind(b: Builder) -> str:
    return b.rng.choice(("argument", "parameter", "parameter", "buffer"))


@operator(4)
def _product(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() > 0)
    dtype, (*_, last) = b.tensor(name).dtype, b.shape(name)
    fill = b.rng.choice(("whole", "whole", "normal", "special"))
    other = b.input(dtype, (b.rng.choice((1, 3, 8, 17)), last), fill, _kind(b))
    if b.chance(2):
        bias: Any = None
        if b.chance(2):
            bias = Ref(b.input(dtype, (b.tensor(other).shape[0],), "whole", "parameter"))
        return b.step("F.linear", Ref(name), Ref(other), bias, rounds=True)
    turned = b.step("torch.transpose", Ref(other), 0, 1)
    return b.step("torch.matmul", Ref(name), Ref(turned), rounds=True)


@operator()
def _product_of_two(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() >= 2)
    mine = b.tensor(name)
    other = b.pick(lambda t: t.dtype == mine.dtype and t.dim() >= 2 and t.shape == mine.shape)
    turned = b.step("torch.transpose", Ref(other), -1, -2)
    return b.step("torch.matmul", Ref(name), Ref(turned), rounds=True)


@operator()
def _convolution(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() == 4)
    channels = b.size(name, 1)
    side = b.rng.choice((1, 3))
    shape = (b.rng.choice((1, 4)), channels, side, side)
    weight = b.input(b.tensor(name).dtype, shape, "whole", _kind(b))
    options = (b.rng.choice((1, 2)), b.rng.choice((0, 1)))
    return b.step("F.conv2d", Ref(name), Ref(weight), None, *options, rounds=True)


@operator()
def _windows(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() in (3, 4), exact=True)
    rank = b.tensor(name).dim() - 2
    function = b.rng.choice((f"max_pool{rank}d", f"avg_pool{rank}d"))
    return b.step(f"F.{function}", Ref(name), 2, b.rng.choice((1, 2)), rounds="avg" in function)


@operator(3)
def _norm(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() > 1)
    last = b.tensor(name).shape[-1]
    if b.size(name, -1) != last:
        raise Unfit("a size that differs")
    function = b.rng.choice(("layer_norm", "rms_norm", "normalize", "group_norm"))
    if function == "normalize":
        return b.step("F.normalize", Ref(name), 2.0, b.dim(name), rounds=True)
    if function == "group_norm":
        return b.step("F.group_norm", Ref(name), 1, rounds=True)
    weight: Any = None
    if b.chance(2):
        weight = Ref(b.input(b.tensor(name).dtype, (last,), "whole", _kind(b)))
    return b.step(f"F.{function}", Ref(name), (last,), weight, rounds=True)


@operator()
def _attention(b: Builder) -> str:
    name = b.pick(lambda t: t.is_floating_point() and t.dim() >= 3)
    mine = b.tensor(name)
    key = b.pick(lambda t: t.shape == mine.shape and t.dtype == mine.dtype)
    mask: Any = None
    if b.chance(2):
        *_, rows, _ = b.shape(name)
        mask = Ref(b.input(mine.dtype, (rows, rows), "masked"))
    args = (Ref(name), Ref(key), Ref(name), mask)
    return b.step("F.scaled_dot_product_attention", *args, rounds=True)
