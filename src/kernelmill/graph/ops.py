"""The operators of the graph IR: arity, attributes and typing rule of each.

Operands of a pointwise operator have one shape: broadcasting is an explicit `expand`. Reductions
drop their dims. Nothing promotes dtypes: casts are explicit. Every result is rounded to its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmill.core.dim import Dim, floordiv, mod
from kernelmill.core.dtype import BOOL, I8, I32, I64, DType
from kernelmill.graph.ir import Attr, TensorType

Attrs = Mapping[str, Any]
MODES = ("set", "add", "mul", "max", "min")
"""How scatter and index_put combine an element with what is written to it."""
Rule = Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]


class TypingError(ValueError):
    """The operands or attributes do not fit the operator; the message says how."""


@dataclass(frozen=True)
class OpDef:
    """An operator. `kind` says how it is lowered (the groups below); `arity` None: any number.

    A node has all of `attrs` and may have those of `optional`, which are false when absent.
    """

    name: str
    kind: str
    arity: int | None
    attrs: tuple[str, ...]
    rule: Rule
    optional: tuple[str, ...] = ()


OPS: dict[str, OpDef] = {}


def _define(names: str, kind: str, arity: int | None, attrs: str, rule: Rule) -> frozenset[str]:
    """`attrs` ending in "?" are optional."""
    required = tuple(attr for attr in attrs.split() if not attr.endswith("?"))
    optional = tuple(attr[:-1] for attr in attrs.split() if attr.endswith("?"))
    for name in names.split():
        OPS[name] = OpDef(name, kind, arity, required, rule, optional)
    return frozenset(names.split())


def infer(op: str, operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Result types of `op`. Raises TypingError when it does not fit, KeyError for no such op."""
    definition = OPS[op]
    if definition.arity is not None and len(operands) != definition.arity:
        raise TypingError(f"{op} takes {definition.arity} operands, not {len(operands)}")
    missing = [name for name in definition.attrs if name not in attrs]
    if missing:
        raise TypingError(f"{op} needs the attributes {', '.join(missing)}")
    if op != "aten" and any(operand.dtype.is_opaque for operand in operands):
        raise TypingError(f"{op} cannot compute on {[operand.dtype for operand in operands]}")
    return definition.rule(operands, attrs)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TypingError(message)


def _differ(a: Dim, b: Dim) -> bool:
    """Whether two sizes are different whatever their symbols stand for."""
    difference = a - b
    return isinstance(difference, int) and difference != 0


def _require_axes(dims: Sequence[int], rank: int) -> None:
    fit = all(0 <= d < rank for d in dims) and len(set(dims)) == len(dims)
    _require(fit, f"dims {dims} do not fit rank {rank}")


# ---- pointwise ------------------------------------------------------------------------------


def _same_shape(operands: Sequence[TensorType]) -> tuple[Dim, ...]:
    shape = operands[0].shape
    for other in operands[1:]:
        if other.shape != shape:
            raise TypingError(f"pointwise operands differ in shape: {shape} and {other.shape}")
    return shape


def _same_dtype(operands: Sequence[TensorType]) -> DType:
    dtypes = {operand.dtype for operand in operands}
    if len(dtypes) != 1:
        raise TypingError(f"operands differ in dtype: {sorted(map(str, dtypes))}")
    return operands[0].dtype


def _pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(_same_dtype(operands), _same_shape(operands)),)


def _number_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype != BOOL, "needs numbers, not bool")
    return _pointwise(operands, attrs)


def _bit_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(not operands[0].dtype.is_float, f"needs integers or bool, not {operands[0].dtype}")
    return _pointwise(operands, attrs)


def _shift(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype.is_integer, f"needs integers, not {operands[0].dtype}")
    return _pointwise(operands, attrs)


def _float_pointwise(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    if not operands[0].dtype.is_float:
        raise TypingError(f"needs a floating dtype, not {operands[0].dtype}")
    return _pointwise(operands, attrs)


def _predicate(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _same_dtype(operands)
    return (TensorType(BOOL, _same_shape(operands)),)


def _where(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    if operands[0].dtype != BOOL:
        raise TypingError(f"where needs a bool condition, not {operands[0].dtype}")
    return (TensorType(_same_dtype(operands[1:]), _same_shape(operands)),)


def _cast(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(not attrs["dtype"].is_opaque, f"no kernel can compute on {attrs['dtype']}")
    return (TensorType(attrs["dtype"], operands[0].shape),)


def _bitcast(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, target = operands[0].dtype, attrs["dtype"]
    same = source.bits == target.bits and BOOL not in (source, target)
    _require(same, f"bitcast keeps the bits: {source} to {target} cannot")
    return _cast(operands, attrs)


FLOAT_UNARY = _define(
    "sqrt rsqrt exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil trunc round reciprocal",
    "pointwise",
    1,
    "",
    _float_pointwise,
)
UNARY = (
    _define("abs sign", "pointwise", 1, "", _pointwise)
    | _define("neg", "pointwise", 1, "", _number_pointwise)
    | _define("bit_not", "pointwise", 1, "", _bit_pointwise)
)
PREDICATE_UNARY = _define("isnan isinf logical_not", "pointwise", 1, "", _predicate)
# div: true division on floats, truncating on integers; floordiv and mod round down (Python's);
# rem has the sign of the dividend (C's fmod). maximum and minimum give NaN when either is NaN.
# On integers a division by zero gives 0 (floordiv, mod and rem too), and so does INT_MIN div -1.
# On bool add is or, sub is xor, mul is and.
BINARY = _define("add sub mul maximum minimum", "pointwise", 2, "", _pointwise) | _define(
    "div floordiv mod rem", "pointwise", 2, "", _number_pointwise
)
FLOAT_BINARY = _define("pow atan2 hypot copysign nextafter", "pointwise", 2, "", _float_pointwise)
# shl by the width or more gives 0, shr the sign; so do negative counts.
BIT_BINARY = _define("bit_and bit_or bit_xor", "pointwise", 2, "", _bit_pointwise) | _define(
    "shl shr", "pointwise", 2, "", _shift
)
COMPARE = _define("eq ne lt le gt ge", "pointwise", 2, "", _predicate)
_define("where", "pointwise", 3, "", _where)
# cast converts the value (floats to integers truncate; to bool: != 0); bitcast keeps the bits.
_define("cast", "pointwise", 1, "dtype", _cast)
_define("bitcast", "pointwise", 1, "dtype", _bitcast)


# ---- sources: computed from the index alone --------------------------------------------------


def _full(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(not attrs["dtype"].is_opaque, f"no kernel can compute on {attrs['dtype']}")
    return (TensorType(attrs["dtype"], attrs["shape"]),)


def _iota(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require_axes((attrs["dim"],), len(attrs["shape"]))
    return (TensorType(I64, attrs["shape"]),)


_define("full", "source", 0, "value dtype shape", _full)  # every element is `value`
_define("iota", "source", 0, "dim shape", _iota)  # element = its index along `dim`
_define("dim_value", "source", 0, "value", lambda _, __: (TensorType(I64, ()),))  # a Dim as data


# ---- views: index arithmetic only -----------------------------------------------------------


def _expand(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, shape = operands[0].shape, attrs["shape"]
    if len(shape) < len(source):
        raise TypingError(f"expand cannot drop dims: {source} to {shape}")
    for have, want in zip(source, shape[len(shape) - len(source) :], strict=True):
        if have not in (1, want):
            raise TypingError(f"expand {source} to {shape}: {have} is neither 1 nor {want}")
    return (TensorType(operands[0].dtype, shape),)


def _permute(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, dims = operands[0].shape, attrs["dims"]
    if sorted(dims) != list(range(len(source))):
        raise TypingError(f"permute dims {dims} are no permutation of rank {len(source)}")
    return (TensorType(operands[0].dtype, tuple(source[d] for d in dims)),)


def _reshape(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    result = TensorType(operands[0].dtype, attrs["shape"])
    have, want = operands[0].elements, result.elements
    if isinstance(have, int) and isinstance(want, int) and have != want:
        raise TypingError(f"reshape {operands[0].shape} to {attrs['shape']}: {have} != {want}")
    return (result,)


def _slice(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    # 0 <= start <= end <= size and step >= 1: negative and clamped forms are resolved before.
    shape, dim = list(operands[0].shape), attrs["dim"]
    _require_axes((dim,), len(shape))
    start, end, step = attrs["start"], attrs["end"], attrs["step"]
    for distance in (start, end - start, shape[dim] - end):
        inside = not isinstance(distance, int) or distance >= 0
        _require(inside, f"slice [{start}:{end}] does not lie inside a size of {shape[dim]}")
    _require(not isinstance(step, int) or step >= 1, f"slice step {step} is not positive")
    shape[dim] = floordiv(end - start + step - 1, step)
    return (TensorType(operands[0].dtype, tuple(shape)),)


def _flip(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require_axes(attrs["dims"], operands[0].rank)
    return (TensorType(operands[0].dtype, operands[0].shape),)


def _pad(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    shape = operands[0].shape
    if not len(shape) == len(attrs["low"]) == len(attrs["high"]):
        raise TypingError(f"pad needs one low and one high for each of {len(shape)} dims")
    negative = [n for n in (*attrs["low"], *attrs["high"]) if isinstance(n, int) and n < 0]
    _require(not negative, f"pad amounts are negative: {negative}")
    padded = zip(shape, attrs["low"], attrs["high"], strict=True)
    return (TensorType(operands[0].dtype, tuple(size + lo + hi for size, lo, hi in padded)),)


def _concat(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
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


def _window(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    shape = list(operands[0].shape)
    _require_axes(attrs["dims"], len(shape))
    columns = ("dims", "size", "stride", "dilation", "low", "high")
    for dim, size, stride, dilation, low, high in zip(*(attrs[c] for c in columns), strict=True):
        reach = dilation * (size - 1) + 1
        shape[dim] = floordiv(shape[dim] + low + high - reach, stride) + 1
    return (TensorType(operands[0].dtype, (*shape, *attrs["size"])),)


def _identity(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    fits = len(attrs["strides"]) == operands[0].rank
    _require(fits, f"strides {attrs['strides']} do not fit rank {operands[0].rank}")
    return (TensorType(operands[0].dtype, operands[0].shape, attrs["strides"]),)


def _as_strided(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    fits = len(attrs["strides"]) == len(attrs["shape"])
    _require(fits, f"strides {attrs['strides']} do not fit shape {attrs['shape']}")
    return (TensorType(operands[0].dtype, attrs["shape"]),)


_define("expand", "view", 1, "shape", _expand)  # as torch's expand; no -1
_define("permute", "view", 1, "dims", _permute)
_define("reshape", "view", 1, "shape", _reshape)
_define("slice", "view", 1, "dim start end step", _slice)
_define("flip", "view", 1, "dims", _flip)
_define("pad", "view", 1, "low high value", _pad)  # amounts >= 0, one for each dim
_define("concat", "view", None, "dim", _concat)
# window: sliding windows over `dims`; each becomes the number of positions, and the offsets inside
# the window are appended as new dims. Pooling is a reduction over it, convolution a contraction.
_define("window", "view", 1, "dims size stride dilation low high value", _window)
# as_strided: element i... is the operand's row-major element number offset + sum(i * strides).
_define("as_strided", "view", 1, "shape strides offset", _as_strided)
# layout: the same values, stored in memory with these strides (a dense permutation of row-major).
_define("layout", "layout", 1, "strides", _identity)


# ---- reductions and scans -------------------------------------------------------------------


def _drop(shape: tuple[Dim, ...], dims: Sequence[int]) -> tuple[Dim, ...]:
    _require_axes(dims, len(shape))
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def _reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, _drop(operands[0].shape, attrs["dims"])),)


def _sum(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype != BOOL, "sums and products need numbers, not bool")
    return _reduce(operands, attrs)


def _peak(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype.is_float, "only floats have elements that are no numbers")
    return _reduce(operands, attrs)


def _arg_reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(I64, _drop(operands[0].shape, (attrs["dim"],))),)


def _scan(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype != BOOL, "sums and products need numbers, not bool")
    _require_axes((attrs["dim"],), operands[0].rank)
    return (TensorType(operands[0].dtype, operands[0].shape),)


# Half types accumulate in f32. reduce_max and reduce_min give NaN when any element is NaN; on bool
# they are any and all. reduce_peak is the largest element that is a number, -inf if none is.
# Integers wrap.
REDUCE = (
    _define("reduce_sum reduce_prod", "reduce", 1, "dims", _sum)
    | _define("reduce_max reduce_min", "reduce", 1, "dims", _reduce)
    | _define("reduce_peak", "reduce", 1, "dims", _peak)
)
# First position of the largest or smallest; NaN counts as both.
ARG_REDUCE = _define("argmax argmin", "reduce", 1, "dim", _arg_reduce)
SCAN = _define("cumsum cumprod", "scan", 1, "dim", _scan)


# ---- orders ---------------------------------------------------------------------------------


def _argsort(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require_axes((attrs["dim"],), operands[0].rank)
    return (TensorType(I64, operands[0].shape),)


def _argtopk(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _require(operands[0].dtype != BOOL, "topk needs numbers, not bool")
    shape, dim, k = list(operands[0].shape), attrs["dim"], attrs["k"]
    _require_axes((dim,), len(shape))
    for distance in (k, shape[dim] - k):
        inside = not isinstance(distance, int) or distance >= 0
        _require(inside, f"there are no {k} largest of {shape[dim]} elements")
    shape[dim] = k
    return (TensorType(I64, tuple(shape)),)


# Positions along `dim` in the order of the elements. NaN is larger than all else, -0.0 equals 0.0.
# argsort: of all elements; stable: equal ones as they came. argtopk: of the k largest or smallest,
# without `sorted` in any order. Where nothing else is said, the order of equal elements is torch's.
SORT = _define("argsort", "sort", 1, "dim descending stable", _argsort) | _define(
    "argtopk", "sort", 1, "dim k largest sorted", _argtopk
)


# ---- contractions ---------------------------------------------------------------------------


def _sums(op: str, operands: Sequence[TensorType], attrs: Attrs) -> DType:
    """The dtype of a contraction's result: the operands', or the one that narrow types sum in."""
    dtype = _same_dtype(operands)
    _require(dtype != BOOL, f"{op} needs numbers, not bool")
    wanted = attrs.get("dtype") or dtype
    exact = (I32,) if dtype == I8 else ()
    _require(wanted in (dtype, dtype.compute, *exact), f"{op} of {dtype} does not sum in {wanted}")
    return wanted


def _matmul(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    a, b = operands
    dtype = _sums("matmul", operands, attrs)
    if a.rank < 2 or a.rank != b.rank or a.shape[:-2] != b.shape[:-2]:
        raise TypingError(f"matmul needs equal batch dims: {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2]:
        raise TypingError(f"matmul inner sizes differ: {a.shape} and {b.shape}")
    return (TensorType(dtype, (*a.shape[:-1], b.shape[-1])),)


def _grouped_matmul(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    a, b, ends = operands
    dtype = _same_dtype((a, b))
    _require(dtype.is_float, f"grouped_matmul of {dtype}")
    shapes = a.shape, b.shape, ends.shape
    _require([len(s) for s in shapes] == [2, 3, 1], f"grouped_matmul needs ranks 2, 3, 1: {shapes}")
    fits = a.shape[1] == b.shape[1] and b.shape[0] == ends.shape[0] and b.shape[0] != 0
    _require(fits, f"grouped_matmul sizes do not fit: {shapes}")
    _require(ends.dtype in (I32, I64), f"ends of groups are i32 or i64, not {ends.dtype}")
    return (TensorType(dtype, (a.shape[0], b.shape[2])),)


def _conv(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
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


def _attention(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
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
        _require(operands[3].dtype in (BOOL, query.dtype), "attention mask: bool or query's dtype")
        _expand(operands[3:], {"shape": (*query.shape[:3], key.shape[2])})
    return (TensorType(query.dtype, (*query.shape[:-1], value.shape[-1])),)


# matmul: (B..., M, K) x (B..., K, N). Halves sum in f32; with dtype=f32 the sum is not rounded.
# Bytes wrap; i8 with dtype=i32 does not.
_define("matmul", "contract", 2, "dtype?", _matmul)
# grouped_matmul: (M, K) x (G, K, N), ends (G): rows from ends[g - 1] up to ends[g] are multiplied
# with matrix g, those behind the last end are zeros. Ends that descend raise IndexError; one beyond
# M is M.
_define("grouped_matmul", "contract", 3, "", _grouped_matmul)
_define("conv", "contract", 2, "stride padding dilation groups dtype?", _conv)
# attention: query (B, H, M, D), key (B, G, N, D), value (B, G, N, E), with H a multiple of G;
# optional 4th operand: a mask that expands to (B, H, M, N), bool (True: keep) or of query's dtype
# (added). softmax(query @ key^T * scale + mask) @ value; causal keeps n <= m. A row in which every
# score is -inf gives zeros.
_define("attention", "attention", None, "scale causal", _attention)


# ---- gather and scatter ---------------------------------------------------------------------


def _require_index(*indices: TensorType) -> None:
    wrong = [index.dtype for index in indices if index.dtype != I64]
    _require(not wrong, f"index tensors are i64, not {wrong}")


def _index(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, indices, dims = operands[0], operands[1:], attrs["dims"]
    if len(indices) != len(dims):
        raise TypingError(f"index: {len(dims)} dims but {len(indices)} index tensors")
    _require(len(dims) > 0 and list(dims) == sorted(dims), f"index dims {dims} do not ascend")
    _require_index(*indices)
    inner = _same_shape(indices)
    kept, at = _drop(source.shape, dims), attrs["at"]
    _require(0 <= at <= len(kept), f"index: position {at} is outside the {len(kept)} kept dims")
    return (TensorType(source.dtype, (*kept[:at], *inner, *kept[at:])),)


def _gather(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, index = operands[:2]
    _require_index(index)
    _require(source.rank == index.rank, f"ranks differ: {source.shape} and {index.shape}")
    _require_axes((attrs["dim"],), source.rank)
    return (TensorType(source.dtype, index.shape),)


def _mode(attrs: Attrs) -> None:
    _require(attrs["mode"] in MODES, f"mode {attrs['mode']!r} is none of {', '.join(MODES)}")


def _scatter(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    target, index, source = operands
    _mode(attrs)
    _gather((target, index), attrs)
    _require(source.rank == index.rank, f"ranks differ: {source.shape} and {index.shape}")
    return (TensorType(_same_dtype((target, source)), target.shape),)


def _index_put(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    target, values, *indices = operands
    _mode(attrs)
    (addressed,) = _index((target, *indices), attrs)
    _same_shape((addressed, values))
    _same_dtype((addressed, values))
    return (TensorType(operands[0].dtype, operands[0].shape),)


# Index tensors are i64; negative ones count from the end; one out of range raises IndexError.
# `unsigned`: negative ones are out of range too (embedding, gather and others of torch).
# index(x, i0, i1...): `dims` of x (ascending) are looked up; the indices' common shape stands at
# position `at` of the remaining dims.
_define("index", "gather", None, "dims at unsigned?", _index)
_define("gather", "gather", 2, "dim unsigned?", _gather)  # as torch.gather
# scatter(x, index, source) and index_put(x, values, i0, i1...): x with the addressed elements
# replaced or combined; mode is "set", "add", "mul", "max" or "min"; values has index's shape.
# `inplace`: x is an updated input, nothing later reads its old value, and the result is its update:
# the lowering writes the addressed elements into the input's memory and copies nothing.
_define("scatter", "scatter", 3, "dim mode unsigned? inplace?", _scatter)
_define("index_put", "scatter", None, "dims at mode unsigned? inplace?", _index_put)


# ---- ATen ----------------------------------------------------------------------------------


def _aten(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return tuple(TensorType(*entry) for entry in attrs["results"])


# aten: an operator that runs as itself. `target` "aten.topk.default"; `args` and `kwargs` are the
# call's arguments with ("tensor", i) standing for operand i; `results` is (dtype, shape, strides)
# of each; `binds` is ((symbol, result, dim), ...) for sizes known only afterwards, with dim -1 for
# the value of a 0-d integer result; `reason` says why it was not lowered.
_define("aten", "aten", None, "target args kwargs results binds reason", _aten)


def is_kind(op: str, kind: str) -> bool:
    """Whether the operator is of that kind: "pointwise", "source", "view", "reduce" and so on."""
    return OPS[op].kind == kind


__all__ = [
    "ARG_REDUCE", "BINARY", "BIT_BINARY", "COMPARE", "FLOAT_BINARY", "FLOAT_UNARY", "MODES", "OPS",
    "PREDICATE_UNARY", "REDUCE", "SCAN", "SORT", "UNARY", "Attr", "OpDef", "TypingError", "infer",
    "is_kind",
]  # fmt: skip
