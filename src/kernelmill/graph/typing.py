"""Typing rules of the graph IR's operators: the types of the results, from those of the operands.

Operands of a pointwise operator have one shape: broadcasting is an explicit `expand`. Reductions
drop their dims. Nothing promotes dtypes: casts are explicit.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, floordiv, mod
from kernelmill.core.dtype import BOOL, F32, I8, I32, I64, DType
from kernelmill.graph.ir import CELL_GATES, Attrs, Combine, TensorType


class TypingError(ValueError):
    """The operands or attributes do not fit the operator; the message says how."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TypingError(message)


def _differ(a: Dim, b: Dim) -> bool:
    """Return whether two sizes differ whatever their symbols stand for."""
    difference = a - b
    return isinstance(difference, int) and difference != 0


def _require_axes(dims: Sequence[int], rank: int) -> None:
    if not all(0 <= d < rank for d in dims) or len(set(dims)) != len(dims):
        raise TypingError(f"dims {dims} do not fit rank {rank}")


# ---- pointwise ----------------------------------------------------------------------------


def _same_shape(operands: Sequence[TensorType]) -> tuple[Dim, ...]:
    shape = operands[0].shape
    for other in operands[1:]:
        if other.shape != shape:
            raise TypingError(f"pointwise operands differ in shape: {shape} and {other.shape}")
    return shape


def _same_dtype(operands: Sequence[TensorType]) -> DType:
    dtype = operands[0].dtype
    for other in operands:
        if other.dtype != dtype:
            names = sorted({str(operand.dtype) for operand in operands})
            raise TypingError(f"operands differ in dtype: {names}")
    return dtype


def pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Operands of one dtype and one shape; the result is like them."""
    return (TensorType(_same_dtype(operands), _same_shape(operands)),)


def number_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`pointwise` of all but bool."""
    _require(operands[0].dtype != BOOL, "needs numbers, not bool")
    return pointwise(operands, attrs)


def bit_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`pointwise` of integers or bool."""
    _require(not operands[0].dtype.is_float, f"needs integers or bool, not {operands[0].dtype}")
    return pointwise(operands, attrs)


def shift(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`pointwise` of integers."""
    _require(operands[0].dtype.is_integer, f"needs integers, not {operands[0].dtype}")
    return pointwise(operands, attrs)


def float_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`pointwise` of floats."""
    if not operands[0].dtype.is_float:
        raise TypingError(f"needs a floating dtype, not {operands[0].dtype}")
    return pointwise(operands, attrs)


def predicate(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Operands of one dtype and one shape; the result is bool."""
    _same_dtype(operands)
    return (TensorType(BOOL, _same_shape(operands)),)


def where(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A bool condition, and two operands of one dtype."""
    if operands[0].dtype != BOOL:
        raise TypingError(f"where needs a bool condition, not {operands[0].dtype}")
    return (TensorType(_same_dtype(operands[1:]), _same_shape(operands)),)


def cast(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand's shape with the dtype that `dtype` names."""
    _require(not attrs["dtype"].is_opaque, f"no kernel can compute on {attrs['dtype']}")
    return (TensorType(attrs["dtype"], operands[0].shape),)


def bitcast(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`cast` to a dtype of as many bits."""
    source, target = operands[0].dtype, attrs["dtype"]
    same = source.bits == target.bits and BOOL not in (source, target)
    _require(same, f"bitcast keeps the bits: {source} to {target} cannot")
    return cast(operands, attrs)


# ---- sources ------------------------------------------------------------------------------


def full(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The `shape` and `dtype` of the attributes."""
    _require(not attrs["dtype"].is_opaque, f"no kernel can compute on {attrs['dtype']}")
    return (TensorType(attrs["dtype"], attrs["shape"]),)


def iota(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i64 of the `shape` of the attributes."""
    _require_axes((attrs["dim"],), len(attrs["shape"]))
    return (TensorType(I64, attrs["shape"]),)


def dim_value(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i64 without dims."""
    return (TensorType(I64, ()),)


# ---- views --------------------------------------------------------------------------------


def expand(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The `shape`, which may have leading dims more; only sizes of 1 may become others."""
    source, shape = operands[0].shape, attrs["shape"]
    if len(shape) < len(source):
        raise TypingError(f"expand cannot drop dims: {source} to {shape}")
    for have, want in zip(source, shape[len(shape) - len(source) :], strict=True):
        if have not in (1, want):
            raise TypingError(f"expand {source} to {shape}: {have} is neither 1 nor {want}")
    return (TensorType(operands[0].dtype, shape),)


def permute(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand's sizes in the order of `dims`."""
    source, dims = operands[0].shape, attrs["dims"]
    if sorted(dims) != list(range(len(source))):
        raise TypingError(f"permute dims {dims} are no permutation of rank {len(source)}")
    return (TensorType(operands[0].dtype, tuple(source[d] for d in dims)),)


def reshape(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The `shape`, which has as many elements."""
    result = TensorType(operands[0].dtype, attrs["shape"])
    have, want = operands[0].elements, result.elements
    if isinstance(have, int) and isinstance(want, int) and have != want:
        raise TypingError(f"reshape {operands[0].shape} to {attrs['shape']}: {have} != {want}")
    return (result,)


def slice_(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """0 <= start <= end <= size and step >= 1: negative and clamped forms are resolved before."""
    shape, dim = list(operands[0].shape), attrs["dim"]
    _require_axes((dim,), len(shape))
    start, end, step = attrs["start"], attrs["end"], attrs["step"]
    for distance in (start, end - start, shape[dim] - end):
        if isinstance(distance, int) and distance < 0:
            size = shape[dim]
            raise TypingError(f"slice [{start}:{end}] does not lie inside a size of {size}")
    _require(not isinstance(step, int) or step >= 1, f"slice step {step} is not positive")
    shape[dim] = floordiv(end - start + step - 1, step)
    return (TensorType(operands[0].dtype, tuple(shape)),)


def flip(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand's type; `dims` are some of its dims."""
    _require_axes(attrs["dims"], operands[0].rank)
    return (TensorType(operands[0].dtype, operands[0].shape),)


def pad(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each dim longer by its `low` and `high`, which are not negative."""
    shape = operands[0].shape
    if not len(shape) == len(attrs["low"]) == len(attrs["high"]):
        raise TypingError(f"pad needs one low and one high for each of {len(shape)} dims")
    negative = [n for n in (*attrs["low"], *attrs["high"]) if isinstance(n, int) and n < 0]
    _require(not negative, f"pad amounts are negative: {negative}")
    padded = zip(shape, attrs["low"], attrs["high"], strict=True)
    return (TensorType(operands[0].dtype, tuple(size + lo + hi for size, lo, hi in padded)),)


def concat(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Operands of one dtype that differ in the size of `dim` alone; that is the sum of theirs."""
    _require(len(operands) > 0, "concat needs an operand")
    dtype, dim = _same_dtype(operands), attrs["dim"]
    shape = list(operands[0].shape)
    _require_axes((dim,), len(shape))
    for other in operands[1:]:
        if other.rank != len(shape):
            raise TypingError("concat operands differ in rank")
        for axis, (have, size) in enumerate(zip(other.shape, shape, strict=True)):
            fits = axis == dim or not _differ(have, size)
            _require(fits, f"concat along {dim}: {have} is not {size} in dim {axis}")
        shape[dim] = shape[dim] + other.shape[dim]
    return (TensorType(dtype, tuple(shape)),)


def window(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each of `dims` as the number of positions, and the windows' sizes as new dims."""
    shape = list(operands[0].shape)
    _require_axes(attrs["dims"], len(shape))
    columns = ("dims", "size", "stride", "dilation", "low", "high")
    for dim, size, stride, dilation, low, high in zip(*(attrs[c] for c in columns), strict=True):
        reach = dilation * (size - 1) + 1
        shape[dim] = floordiv(shape[dim] + low + high - reach, stride) + 1
    return (TensorType(operands[0].dtype, (*shape, *attrs["size"])),)


def layout(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand's type with `strides`, one for each dim."""
    fits = len(attrs["strides"]) == operands[0].rank
    _require(fits, f"strides {attrs['strides']} do not fit rank {operands[0].rank}")
    return (TensorType(operands[0].dtype, operands[0].shape, attrs["strides"]),)


def as_strided(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The `shape`, with a stride for each dim."""
    fits = len(attrs["strides"]) == len(attrs["shape"])
    _require(fits, f"strides {attrs['strides']} do not fit shape {attrs['shape']}")
    return (TensorType(operands[0].dtype, attrs["shape"]),)


# ---- reductions, scans, orders ------------------------------------------------------------


def _drop(shape: tuple[Dim, ...], dims: Sequence[int]) -> tuple[Dim, ...]:
    _require_axes(dims, len(shape))
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand without `dims`."""
    return (TensorType(operands[0].dtype, _drop(operands[0].shape, attrs["dims"])),)


def number_reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`reduce` of all but bool."""
    _require(operands[0].dtype != BOOL, "sums and products need numbers, not bool")
    return reduce(operands, attrs)


def float_reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """`reduce` of floats."""
    _require(operands[0].dtype.is_float, "only floats have elements that are no numbers")
    return reduce(operands, attrs)


def arg_reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i64 of the operand's shape without `dim`."""
    return (TensorType(I64, _drop(operands[0].shape, (attrs["dim"],))),)


def scan(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operand's type, which is not bool."""
    _require(operands[0].dtype != BOOL, "sums and products need numbers, not bool")
    _require_axes((attrs["dim"],), operands[0].rank)
    return (TensorType(operands[0].dtype, operands[0].shape),)


def argsort(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i64 of the operand's shape."""
    _require_axes((attrs["dim"],), operands[0].rank)
    return (TensorType(I64, operands[0].shape),)


def searchsorted(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i32 or i64 of the values' shape, for ascending numbers of their dtype in rows."""
    rows, values = operands
    _require(rows.dtype == values.dtype != BOOL, f"no order of {rows.dtype} and {values.dtype}")
    fits = rows.rank == 1 or (rows.rank > 1 and rows.shape[:-1] == values.shape[:-1])
    _require(fits, f"no rows of {rows.shape} for values of {values.shape}")
    _require(attrs["dtype"] in (I32, I64), f"positions as {attrs['dtype']}")
    return (TensorType(attrs["dtype"], values.shape),)


def recurrent(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """What cells give after each step; of an LSTM the last cell state too."""
    gates, weight, state, *more = operands
    _require(all(o.dtype == F32 for o in operands), "recurrent layers are of f32")
    count = CELL_GATES.get(str(attrs["cell"]))
    _require(count is not None, f"no cell {attrs['cell']}")
    batch, width = state.shape
    projected = count == 4 and len(more) == 2 and more[1].rank == 2
    size = more[1].shape[0] if projected else width
    wide = (count or 0) * size
    fits = weight.shape == (width, wide) and gates.shape[1:] == (batch, wide)
    further = {3: [(size,)], 4: [(batch, size)]}.get(count or 0, [])
    further += [(size, width)] * projected
    fits = fits and [o.shape for o in more] == further
    _require(fits, f"no {attrs['cell']} of {[o.shape for o in operands]}")
    return (TensorType(F32, (gates.shape[0] + (count == 4), batch, size)),)


def argtopk(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An i64 of the operand's shape with `k` elements along `dim`."""
    _require(operands[0].dtype != BOOL, "topk needs numbers, not bool")
    shape, dim, k = list(operands[0].shape), attrs["dim"], attrs["k"]
    _require_axes((dim,), len(shape))
    for distance in (k, shape[dim] - k):
        inside = not isinstance(distance, int) or distance >= 0
        _require(inside, f"there are no {k} largest of {shape[dim]} elements")
    shape[dim] = k
    return (TensorType(I64, tuple(shape)),)


# ---- contractions -------------------------------------------------------------------------


def _sums(op: str, operands: Sequence[TensorType], attrs: Attrs) -> DType:
    """Return the dtype of a contraction: the operands', or the one that narrow types sum in."""
    dtype = _same_dtype(operands)
    _require(dtype != BOOL, f"{op} needs numbers, not bool")
    wanted = attrs.get("dtype") or dtype
    exact = (I32,) if dtype == I8 else ()
    _require(wanted in (dtype, dtype.compute, *exact), f"{op} of {dtype} does not sum in {wanted}")
    return wanted


def matmul(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """(B..., M, K) x (B..., K, N) gives (B..., M, N)."""
    a, b = operands
    dtype = _sums("matmul", operands, attrs)
    if "products" in attrs:
        _require(a.dtype == F32, f"matmul of {a.dtype} has no `products`")
        _require(attrs["products"] in (0, 1, 3), f"matmul by {attrs['products']} products")
    if a.rank < 2 or a.rank != b.rank or a.shape[:-2] != b.shape[:-2]:
        raise TypingError(f"matmul needs equal batch dims: {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2]:
        raise TypingError(f"matmul inner sizes differ: {a.shape} and {b.shape}")
    return (TensorType(dtype, (*a.shape[:-1], b.shape[-1])),)


def grouped_matmul(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """(M, K) x (G, K, N), ends (G) gives (M, N)."""
    a, b, ends = operands
    dtype = _same_dtype((a, b))
    _require(dtype.is_float, f"grouped_matmul of {dtype}")
    shapes = a.shape, b.shape, ends.shape
    _require([len(s) for s in shapes] == [2, 3, 1], f"grouped_matmul needs ranks 2, 3, 1: {shapes}")
    fits = a.shape[1] == b.shape[1] and b.shape[0] == ends.shape[0] and b.shape[0] != 0
    _require(fits, f"grouped_matmul sizes do not fit: {shapes}")
    _require(ends.dtype in (I32, I64), f"ends of groups are i32 or i64, not {ends.dtype}")
    return (TensorType(dtype, (a.shape[0], b.shape[2])),)


def conv(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """(N, C, *) x (O, C / groups, *) gives (N, O, *)."""
    x, weight = operands
    if x.rank != weight.rank or x.rank < 3:
        raise TypingError(f"conv needs (N, C, *) and (O, C / groups, *): {x.shape}, {weight.shape}")
    dtype, groups = _sums("conv", operands, attrs), attrs["groups"]
    fits = groups >= 1 and not _differ(x.shape[1], weight.shape[1] * groups)
    fits = fits and not _differ(mod(weight.shape[0], groups), 0)
    _require(fits, f"conv channels do not fit {groups} groups: {x.shape}, {weight.shape}")
    spatial = zip(
        x.shape[2:], weight.shape[2:], attrs["stride"], attrs["padding"], attrs["dilation"],
        strict=True,
    )  # fmt: skip
    sizes = tuple(
        floordiv(size + 2 * padding - dilation * (kernel - 1) - 1, stride) + 1
        for size, kernel, stride, padding, dilation in spatial
    )
    return (TensorType(dtype, (x.shape[0], weight.shape[0], *sizes)),)


def attention(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Query (B, H, M, D), key (B, G, N, D), value (B, G, N, E) give (B, H, M, E)."""
    _require(len(operands) in (3, 4), f"attention takes 3 or 4 operands, not {len(operands)}")
    query, key, value = operands[:3]
    _require(_same_dtype(operands[:3]).is_float, "attention needs a floating dtype")
    shapes = query.shape, key.shape, value.shape
    _require(all(len(shape) == 4 for shape in shapes), f"attention needs rank 4: {shapes}")
    pairs = (
        (query.shape[0], key.shape[0]), (query.shape[0], value.shape[0]),
        (query.shape[3], key.shape[3]), (key.shape[1], value.shape[1]),
        (key.shape[2], value.shape[2]), (mod(query.shape[1], key.shape[1]), 0),
    )  # fmt: skip
    _require(not any(_differ(a, b) for a, b in pairs), f"attention sizes do not fit: {shapes}")
    if len(operands) == 4:
        kinds = BOOL, query.dtype, query.dtype.compute
        fits = operands[3].dtype in kinds
        _require(fits, "attention mask: bool, query's dtype or the one that it computes in")
        expand(operands[3:], {"shape": (*query.shape[:3], key.shape[2])})
    return (TensorType(query.dtype, (*query.shape[:-1], value.shape[-1])),)


def attention_scores(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Query (B, H, M, D), key (B, G, N, D) give (B, H, M, N) in the dtype that theirs computes
    in."""
    query, key = operands
    dtype = _same_dtype(operands)
    shapes = query.shape, key.shape
    _require(dtype.is_float and query.rank == key.rank == 4, f"no scores of {shapes} in {dtype}")
    pairs = (
        (query.shape[0], key.shape[0]), (query.shape[3], key.shape[3]),
        (mod(query.shape[1], key.shape[1]), 0),
    )  # fmt: skip
    _require(not any(_differ(a, b) for a, b in pairs), f"scores: sizes do not fit: {shapes}")
    return (TensorType(dtype.compute, (*query.shape[:3], key.shape[2])),)


def flex_attention(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Scores (B, H, M, N), value (B, G, N, E) give (B, H, M, E), or E + 1 with a `normaliser`."""
    masked, blocks = bool(attrs.get("masked")), attrs.get("blocks") or ()
    _require(len(operands) >= 2, "flex_attention takes scores and values")
    scores, value, *rest = operands
    shapes = scores.shape, value.shape
    _require(scores.rank == value.rank == 4, f"flex_attention needs rank 4: {shapes}")
    fits = value.dtype.is_float and value.dtype.compute == scores.dtype
    _require(fits, f"flex_attention of {scores.dtype} and {value.dtype}")
    pairs = (
        (scores.shape[0], value.shape[0]), (scores.shape[3], value.shape[2]),
        (mod(scores.shape[1], value.shape[1]), 0),
    )  # fmt: skip
    _require(not any(_differ(a, b) for a, b in pairs), f"flex_attention: no fit: {shapes}")
    if masked:
        _require(len(rest) > 0 and rest[0].dtype == BOOL, "a mask of flex_attention is bool")
        expand(rest[:1], {"shape": scores.shape})
    lists = rest[masked:]
    _require(len(lists) in ((2, 4) if blocks else (0,)), f"{len(lists)} lists for blocks {blocks}")
    _require(len(blocks) in (0, 2), f"blocks are of rows and keys, not {blocks}")
    _require(all(isinstance(n, int) and n > 0 for n in blocks), f"blocks of {blocks} elements")
    for counts, numbers in zip(lists[::2], lists[1::2], strict=True):
        _require(counts.dtype == numbers.dtype == I32, "lists of blocks are i32")
        fits = counts.rank == 3 and numbers.rank == 4 and counts.shape == numbers.shape[:3]
        fits = fits and all(
            n in (1, s) for n, s in zip(counts.shape[:2], scores.shape[:2], strict=True)
        )
        _require(fits, f"lists of {counts.shape}, {numbers.shape} blocks for {scores.shape}")
    shape = (*scores.shape[:3], value.shape[3])
    if attrs.get("normaliser"):
        return (TensorType(scores.dtype, (*shape[:3], shape[3] + 1)),)
    return (TensorType(value.dtype, shape),)


# ---- gather and scatter -------------------------------------------------------------------


def _require_index(*indices: TensorType) -> None:
    wrong = [index.dtype for index in indices if index.dtype != I64]
    _require(not wrong, f"index tensors are i64, not {wrong}")


def index(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The kept dims of the first operand, with the indices' shape put in at position `at`."""
    source, indices, dims = operands[0], operands[1:], attrs["dims"]
    if len(indices) != len(dims):
        raise TypingError(f"index: {len(dims)} dims but {len(indices)} index tensors")
    _require(len(dims) > 0 and list(dims) == sorted(dims), f"index dims {dims} do not ascend")
    _require_index(*indices)
    inner = _same_shape(indices)
    kept, at = _drop(source.shape, dims), attrs["at"]
    _require(0 <= at <= len(kept), f"index: position {at} is outside the {len(kept)} kept dims")
    return (TensorType(source.dtype, (*kept[:at], *inner, *kept[at:])),)


def gather(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The index's shape; it has the rank of the first operand."""
    source, index = operands[:2]
    _require_index(index)
    _require(source.rank == index.rank, f"ranks differ: {source.shape} and {index.shape}")
    _require_axes((attrs["dim"],), source.rank)
    return (TensorType(source.dtype, index.shape),)


def _mode(attrs: Attrs) -> None:
    modes = tuple(Combine)
    _require(attrs["mode"] in modes, f"mode {attrs['mode']!r} is none of {', '.join(modes)}")


def scatter(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The first operand's type; the source has its dtype, the index the source's rank."""
    target, index, source = operands
    _mode(attrs)
    gather((target, index), attrs)
    _require(source.rank == index.rank, f"ranks differ: {source.shape} and {index.shape}")
    return (TensorType(_same_dtype((target, source)), target.shape),)


def index_put(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The first operand's type; the values have the shape that `index` would give."""
    target, values, *indices = operands
    _mode(attrs)
    (addressed,) = index((target, *indices), attrs)
    _same_shape((addressed, values))
    _same_dtype((addressed, values))
    return (TensorType(operands[0].dtype, operands[0].shape),)


# ---- ATen ---------------------------------------------------------------------------------


def aten(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Return the types in the attribute `results`."""
    return tuple(TensorType(*entry) for entry in attrs["results"])
