"""Meaning of each operator of the graph IR, written with eager torch operators.

A function takes the operands and the node's attributes with evaluated dims, and returns the result.
Float arithmetic on half types is done in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

from kernelmill.core.dtype import I32, to_torch
from kernelmill.graph.ir import Attrs, Combine, OpKind
from kernelmill.graph.ops import OPS

Meaning = Callable[[Sequence[Tensor], Attrs], Tensor]

_HALF = (torch.float16, torch.bfloat16)

EAGER: dict[str, Meaning] = {}
"""The meaning of every operator but `layout` and `aten`, by name."""


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


# ---- pointwise ------------------------------------------------------------------------------


def _pointwise(function: Callable[..., Tensor], operands: Sequence[Tensor], _: Attrs) -> Tensor:
    """Compute half types through f32; a bool result stays bool."""
    result = function(*map(_wide, operands))
    return result if result.dtype == torch.bool else result.to(operands[-1].dtype)


def _on_bool(
    plain: Callable[..., Tensor], on_bool: Callable[..., Tensor], *operands: Tensor
) -> Tensor:
    return (on_bool if operands[0].dtype == torch.bool else plain)(*operands)


def _defined(
    integers: Callable[..., Tensor], floats: Callable[..., Tensor], a: Tensor, b: Tensor
) -> Tensor:
    """Divide; integers give 0 where the divisor is 0 and where the quotient overflows."""
    if a.dtype.is_floating_point:
        return floats(a, b)
    undefined = b == 0
    if a.dtype.is_signed:
        undefined |= (b == -1) & (a == torch.iinfo(a.dtype).min)
    return torch.where(undefined, 0, integers(a, torch.where(undefined, 1, b)))


_NOT_AS_TORCH = {
    "bit_not": torch.bitwise_not,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "abs": partial(_on_bool, torch.abs, torch.clone),
    "sign": partial(_on_bool, torch.sign, torch.clone),
    "add": partial(_on_bool, torch.add, torch.logical_or),
    "sub": partial(_on_bool, torch.sub, torch.logical_xor),
    "mul": partial(_on_bool, torch.mul, torch.logical_and),
    "div": partial(_defined, partial(torch.div, rounding_mode="trunc"), torch.div),
    "floordiv": partial(_defined, torch.floor_divide, torch.floor_divide),
    "mod": partial(_defined, torch.remainder, torch.remainder),
    "rem": partial(_defined, torch.fmod, torch.fmod),
}
for _name, _function in _NOT_AS_TORCH.items():
    EAGER[_name] = partial(_pointwise, _function)
EAGER["multiply_add"] = partial(_pointwise, lambda a, b, c: torch.addcmul(c, a, b))
# The neighbour is another one in another type.
EAGER["nextafter"] = lambda operands, _: torch.nextafter(*operands)
EAGER["cast"] = lambda operands, attrs: operands[0].to(to_torch(attrs["dtype"]))
EAGER["bitcast"] = lambda operands, attrs: operands[0].view(to_torch(attrs["dtype"]))
for _name, _op in OPS.items():
    if _op.kind is OpKind.POINTWISE and _name not in EAGER:
        EAGER[_name] = partial(_pointwise, getattr(torch, _name))


# ---- sources and views ----------------------------------------------------------------------


def _full(_: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return torch.full(attrs["shape"], attrs["value"], dtype=to_torch(attrs["dtype"]))


def _iota(_: Sequence[Tensor], attrs: Attrs) -> Tensor:
    shape, dim = attrs["shape"], attrs["dim"]
    along = [size if d == dim else 1 for d, size in enumerate(shape)]
    return torch.arange(shape[dim]).reshape(along).expand(shape)


def _slice(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    index = [slice(None)] * operands[0].ndim
    index[attrs["dim"]] = slice(attrs["start"], attrs["end"], attrs["step"])
    return operands[0][tuple(index)]


def _padded(x: Tensor, low: Sequence[int], high: Sequence[int], value: float) -> Tensor:
    shape = [size + lo + hi for size, lo, hi in zip(x.shape, low, high, strict=True)]
    result = torch.full(shape, value, dtype=x.dtype)
    inside = tuple(slice(lo, lo + size) for size, lo in zip(x.shape, low, strict=True))
    result[inside] = x
    return result


def _window(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, dims = operands[0], list(attrs["dims"])
    low, high = ([0] * x.ndim for _ in range(2))
    for dim, lo, hi in zip(dims, attrs["low"], attrs["high"], strict=True):
        low[dim], high[dim] = lo, hi
    x = _padded(x, low, high, attrs["value"])
    columns = ("size", "stride", "dilation")
    for dim, size, stride, dilation in zip(dims, *(attrs[c] for c in columns), strict=True):
        x = x.unfold(dim, dilation * (size - 1) + 1, stride)[..., ::dilation]
    return x


def _as_strided(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    dense = operands[0].contiguous()
    offset = dense.storage_offset() + attrs["offset"]
    return dense.as_strided(attrs["shape"], attrs["strides"], offset)


EAGER["full"] = _full
EAGER["iota"] = _iota
EAGER["dim_value"] = lambda _, attrs: torch.tensor(attrs["value"], dtype=torch.int64)
EAGER["expand"] = lambda operands, attrs: operands[0].expand(attrs["shape"])
EAGER["permute"] = lambda operands, attrs: operands[0].permute(attrs["dims"])
EAGER["reshape"] = lambda operands, attrs: operands[0].reshape(attrs["shape"])
EAGER["slice"] = _slice
EAGER["flip"] = lambda operands, attrs: operands[0].flip(attrs["dims"])
EAGER["pad"] = lambda operands, attrs: _padded(
    operands[0], attrs["low"], attrs["high"], attrs["value"]
)
EAGER["concat"] = lambda operands, attrs: torch.cat(list(operands), attrs["dim"])
EAGER["window"] = _window
EAGER["as_strided"] = _as_strided


# ---- reductions and scans -------------------------------------------------------------------


def _sum(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x = operands[0]
    wide = _wide(x)
    return wide.sum(attrs["dims"], dtype=wide.dtype).to(x.dtype) if attrs["dims"] else x


def _prod(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    result = _wide(operands[0])
    for dim in sorted(attrs["dims"], reverse=True):
        result = result.prod(dim, dtype=result.dtype)
    return result.to(operands[0].dtype)


def _extreme(function: Callable[..., Tensor], operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return function(operands[0], attrs["dims"]) if attrs["dims"] else operands[0]


def _max(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    found = _extreme(torch.amax, operands, attrs)
    if not attrs.get("ordered") or not found.dtype.is_floating_point or not operands[0].numel():
        return found
    rank, dims = operands[0].dim(), attrs["dims"]
    x = operands[0].permute(*(d for d in range(rank) if d not in dims), *dims)
    x = x.reshape(*found.shape, -1)
    first = (x == found.unsqueeze(-1)).to(torch.uint8).argmax(-1, keepdim=True)
    return torch.where(found.isnan(), found, x.gather(-1, first).squeeze(-1))


def _peak(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    numbers = operands[0].masked_fill(operands[0].isnan(), -torch.inf)
    return _extreme(torch.amax, (numbers,), attrs)


def _arg(function: Callable[..., Tensor], operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x = operands[0]
    return function(x.to(torch.uint8) if x.dtype == torch.bool else x, attrs["dim"])


def _scan(function: Callable[..., Tensor], operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    wide = _wide(operands[0])
    return function(wide, attrs["dim"], dtype=wide.dtype).to(operands[0].dtype)


EAGER["reduce_sum"] = _sum
EAGER["reduce_prod"] = _prod
EAGER["reduce_max"] = _max
EAGER["reduce_min"] = partial(_extreme, torch.amin)
EAGER["reduce_maxnum"] = _peak
EAGER["argmax"] = partial(_arg, torch.argmax)
EAGER["argmin"] = partial(_arg, torch.argmin)
EAGER["cumsum"] = partial(_scan, torch.cumsum)
EAGER["cumprod"] = partial(_scan, torch.cumprod)


# ---- orders ---------------------------------------------------------------------------------


def _argsort(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x = operands[0].contiguous()  # torch leaves alone what is one element many times over
    descending, stable = attrs["descending"], attrs["stable"]
    return torch.sort(x, stable=stable, dim=attrs["dim"], descending=descending)[1]


EAGER["argsort"] = _argsort
EAGER["searchsorted"] = lambda operands, attrs: torch.searchsorted(
    operands[0].contiguous(), operands[1].contiguous(), right=attrs["right"],
    out_int32=attrs["dtype"] == I32,
)  # fmt: skip


def _recurrent(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    gates, weight, state, *more = operands
    steps, found = range(len(gates)), [torch.empty_like(state)] * len(gates)
    for step in reversed(steps) if attrs["backward"] else steps:
        given, product = gates[step], state @ weight
        if attrs["cell"] == "lstm":
            into, keep, new, out = (given + product).chunk(4, 1)
            more[0] = keep.sigmoid() * more[0] + into.sigmoid() * new.tanh()
            state = out.sigmoid() * more[0].tanh()
        elif attrs["cell"] == "gru":
            (r, z, n), (u, v, w) = given.chunk(3, 1), product.chunk(3, 1)
            new = torch.tanh(n + torch.sigmoid(r + u) * (w + more[0]))
            state = (state - new) * torch.sigmoid(z + v) + new
        else:
            total = given + product
            state = total.tanh() if attrs["cell"] == "tanh" else total.relu()
        found[step] = state
        state = state @ more[1] if len(more) > 1 else state
    return torch.stack([*found, more[0]] if attrs["cell"] == "lstm" else found)


EAGER["recurrent"] = _recurrent
EAGER["argtopk"] = lambda operands, attrs: torch.topk(
    operands[0], attrs["k"], attrs["dim"], attrs["largest"], attrs["sorted"]
)[1]


# ---- contractions ---------------------------------------------------------------------------


def _grouped_matmul(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    a, b, ends = operands
    result = a.new_zeros(a.shape[0], b.shape[2])
    start = 0
    for matrix, end in zip(b, ends.tolist(), strict=True):
        if end < start:
            raise IndexError(f"a group ends at {end}, before it begins at {start}")
        result[start:end] = a[start:end] @ matrix
        start = end
    return result


def _summed(sums: Tensor, operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    wanted = attrs.get("dtype")
    return sums.to(operands[0].dtype if wanted is None else to_torch(wanted))


def _matmul(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    exact = attrs.get("dtype") == I32
    x, y = (x.to(torch.int32) if exact else _wide(x) for x in operands)
    return _summed(torch.matmul(x, y), operands, attrs)


def _conv(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    # Torch has no convolution of integers with dilation.
    exact = attrs.get("dtype") == I32
    x, weight = (x.double() if exact else _wide(x) for x in operands)
    stride, padding, dilation = (list(attrs[name]) for name in ("stride", "padding", "dilation"))
    unused, groups = [0] * len(stride), attrs["groups"]
    result = torch.convolution(x, weight, None, stride, padding, dilation, False, unused, groups)
    return _summed(result, operands, attrs)


def _attention(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    query, key, value = map(_wide, operands[:3])
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * attrs["scale"]
    for mask in operands[3:]:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        else:
            scores = scores + mask
    if attrs["causal"]:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~kept, -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(nothing, 0)
    return (weights @ value).to(operands[0].dtype)


def _attention_scores(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    query, key = map(_wide, operands)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    return query @ key.transpose(-1, -2) * attrs["scale"]


def _flex_attention(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    scores, value, *rest = operands
    kept = torch.ones_like(scores, dtype=torch.bool)
    if attrs.get("masked"):
        kept, *rest = rest
    if rest:
        partial, *full = (
            _blocks_kept(scores, attrs["blocks"], counts, numbers)
            for counts, numbers in zip(rest[::2], rest[1::2], strict=True)
        )
        kept = torch.stack([partial & kept, *full]).any(0)
    scores = scores.masked_fill(~kept, -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(nothing, 0)
    result = weights @ _wide(value).repeat_interleave(scores.shape[1] // value.shape[1], 1)
    if not attrs.get("normaliser"):
        return result.to(value.dtype)
    return torch.cat((result, scores.logsumexp(-1, keepdim=True)), -1)


def _blocks_kept(scores: Tensor, blocks: Sequence[int], counts: Tensor, numbers: Tensor) -> Tensor:
    """Return a mask of the scores that are in a block of the list."""
    rows, keys = (min(size, max(n, 1)) for size, n in zip(blocks, scores.shape[2:], strict=True))
    down, across = (-(-n // size) for n, size in zip(scores.shape[2:], (rows, keys), strict=True))
    listed = torch.arange(numbers.shape[-1]) < counts[..., None]
    if ((numbers < 0) | (numbers >= across))[listed].any():
        raise IndexError(f"a block of keys is none of {across}")
    kept = torch.zeros((*numbers.shape[:3], across + 1), dtype=torch.bool)
    kept.scatter_(3, torch.where(listed, numbers, across).long(), True)
    kept = kept[:, :, :down, :across].repeat_interleave(rows, 2).repeat_interleave(keys, 3)
    return kept[:, :, : scores.shape[2], : scores.shape[3]].expand(scores.shape)


EAGER["matmul"] = _matmul
EAGER["grouped_matmul"] = _grouped_matmul
EAGER["conv"] = _conv
EAGER["attention"] = _attention
EAGER["attention_scores"] = _attention_scores
EAGER["flex_attention"] = _flex_attention


# ---- gather and scatter ---------------------------------------------------------------------


def _from_start(index: Tensor, size: int, attrs: Attrs) -> Tensor:
    """Return indices counted from the start. Raises IndexError when one is out of range."""
    least = 0 if attrs.get("unsigned") else -size
    if bool(((index < least) | (index >= size)).any()):
        raise IndexError(f"an index is out of range for size {size}")
    return torch.where(index < 0, index + size, index)


def _addressed_first(rank: int, dims: Sequence[int]) -> list[int]:
    return [*dims, *(d for d in range(rank) if d not in dims)]


def _places(x: Tensor, indices: Sequence[Tensor], attrs: Attrs) -> tuple[Tensor, ...]:
    pairs = zip(indices, attrs["dims"], strict=True)
    return tuple(_from_start(index, x.shape[dim], attrs) for index, dim in pairs)


def _index(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, *indices = operands
    dims, at, inner = attrs["dims"], attrs["at"], indices[0].ndim
    found = x.permute(_addressed_first(x.ndim, dims))[_places(x, indices, attrs)]
    kept = range(inner, found.ndim)
    return found.permute([*kept[:at], *range(inner), *kept[at:]])


def _gather(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, index = operands
    dim = attrs["dim"]
    return x.gather(dim, _from_start(index, x.shape[dim], attrs))


def _scatter(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, index, source = operands
    dim = attrs["dim"]
    places = _from_start(index, x.shape[dim], attrs)
    return _combine(x, dim, places, source, Combine(attrs["mode"]))


_REDUCTIONS = {Combine.MUL: "prod", Combine.MAX: "amax", Combine.MIN: "amin"}
_ON_BOOL = {Combine.ADD: Combine.MAX, Combine.MUL: Combine.MIN}


def _combine(x: Tensor, dim: int, index: Tensor, source: Tensor, mode: Combine) -> Tensor:
    if x.dtype == torch.bool:
        args = (index, source.to(torch.uint8), _ON_BOOL.get(mode, mode))
        return _combine(x.to(torch.uint8), dim, *args).to(torch.bool)
    if mode is Combine.SET:
        return x.scatter(dim, index, source)
    if mode is Combine.ADD:
        return x.scatter_add(dim, index, source)
    return x.scatter_reduce(dim, index, source, _REDUCTIONS[mode])


def _index_put(operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, values, *indices = operands
    dims, at, inner = attrs["dims"], attrs["at"], indices[0].ndim
    order = _addressed_first(x.ndim, dims)
    turned = x.permute(order)
    count, width = prod(turned.shape[: len(dims)]), prod(turned.shape[len(dims) :])
    row = torch.zeros(indices[0].shape, dtype=torch.int64)
    for place, dim in zip(_places(x, indices, attrs), dims, strict=True):
        row = row * x.shape[dim] + place
    kept = [d for d in range(values.ndim) if not at <= d < at + inner]
    source = values.permute([*range(at, at + inner), *kept]).reshape(row.numel(), width)
    rows = row.reshape(-1, 1).expand(source.shape)
    combined = _combine(turned.reshape(count, width), 0, rows, source, Combine(attrs["mode"]))
    return combined.reshape(turned.shape).permute([order.index(d) for d in range(x.ndim)])


EAGER["index"] = _index
EAGER["gather"] = _gather
EAGER["scatter"] = _scatter
EAGER["index_put"] = _index_put
