"""The operators of the graph IR: arity, attributes and typing rule of each.

Operands of a pointwise operator have one shape: broadcasting is an explicit `expand`. Reductions
drop their dims. Nothing promotes dtypes: casts are explicit. Every result is rounded to its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmill.core.dim import Dim, floordiv
from kernelmill.core.dtype import BOOL, I64, DType
from kernelmill.graph.ir import Attr, TensorType

Attrs = Mapping[str, Any]
Rule = Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]


class TypingError(ValueError):
    """The operands or attributes do not fit the operator; the message says how."""


@dataclass(frozen=True)
class OpDef:
    """An operator. `kind` says how it is lowered: see the groups below. `arity` None: any number."""

    name: str
    kind: str
    arity: int | None
    attrs: tuple[str, ...]
    rule: Rule


OPS: dict[str, OpDef] = {}


def _define(names: str, kind: str, arity: int | None, attrs: str, rule: Rule) -> frozenset[str]:
    for name in names.split():
        OPS[name] = OpDef(name, kind, arity, tuple(attrs.split()), rule)
    return frozenset(names.split())


def infer(op: str, operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Result types of `op`. Raises TypingError when it does not fit, KeyError for no such op."""
    definition = OPS[op]
    if definition.arity is not None and len(operands) != definition.arity:
        raise TypingError(f"{op} takes {definition.arity} operands, not {len(operands)}")
    missing = [name for name in definition.attrs if name not in attrs]
    if missing:
        raise TypingError(f"{op} needs the attributes {', '.join(missing)}")
    return definition.rule(operands, attrs)


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
    return (TensorType(attrs["dtype"], operands[0].shape),)


FLOAT_UNARY = _define(
    "sqrt rsqrt exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil trunc round reciprocal",
    "pointwise",
    1,
    "",
    _float_pointwise,
)
UNARY = _define("neg abs sign bit_not", "pointwise", 1, "", _pointwise)
PREDICATE_UNARY = _define("isnan isinf logical_not", "pointwise", 1, "", _predicate)
# div: true division on floats, truncating on integers; floordiv and mod round down (Python's);
# rem has the sign of the dividend (C's fmod). maximum and minimum give NaN when either is NaN.
BINARY = _define(
    "add sub mul div floordiv mod rem pow maximum minimum", "pointwise", 2, "", _pointwise
)
FLOAT_BINARY = _define("atan2 hypot copysign nextafter", "pointwise", 2, "", _float_pointwise)
BIT_BINARY = _define("bit_and bit_or bit_xor shl shr", "pointwise", 2, "", _pointwise)
COMPARE = _define("eq ne lt le gt ge", "pointwise", 2, "", _predicate)
_define("where", "pointwise", 3, "", _where)
# cast converts the value (floats to integers truncate; to bool: != 0); bitcast keeps the bits.
_define("cast bitcast", "pointwise", 1, "dtype", _cast)


# ---- sources: computed from the index alone --------------------------------------------------


def _full(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(attrs["dtype"], attrs["shape"]),)


def _iota(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
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
    shape = list(operands[0].shape)
    shape[attrs["dim"]] = floordiv(attrs["end"] - attrs["start"] + attrs["step"] - 1, attrs["step"])
    return (TensorType(operands[0].dtype, tuple(shape)),)


def _pad(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    shape = operands[0].shape
    if not len(shape) == len(attrs["low"]) == len(attrs["high"]):
        raise TypingError(f"pad needs one low and one high for each of {len(shape)} dims")
    padded = zip(shape, attrs["low"], attrs["high"], strict=True)
    return (TensorType(operands[0].dtype, tuple(size + lo + hi for size, lo, hi in padded)),)


def _concat(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    dtype, dim = _same_dtype(operands), attrs["dim"]
    shape = list(operands[0].shape)
    for other in operands[1:]:
        if other.rank != len(shape):
            raise TypingError("concat operands differ in rank")
        shape[dim] = shape[dim] + other.shape[dim]
    return (TensorType(dtype, tuple(shape)),)


def _window(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    shape = list(operands[0].shape)
    columns = ("dims", "size", "stride", "dilation", "low", "high")
    for dim, size, stride, dilation, low, high in zip(*(attrs[c] for c in columns), strict=True):
        reach = dilation * (size - 1) + 1
        shape[dim] = floordiv(shape[dim] + low + high - reach, stride) + 1
    return (TensorType(operands[0].dtype, (*shape, *attrs["size"])),)


def _identity(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, operands[0].shape, attrs["strides"]),)


def _as_strided(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, attrs["shape"]),)


_define("expand", "view", 1, "shape", _expand)  # as torch's expand; no -1
_define("permute", "view", 1, "dims", _permute)
_define("reshape", "view", 1, "shape", _reshape)
_define("slice", "view", 1, "dim start end step", _slice)
_define("flip", "view", 1, "dims", lambda o, _: (TensorType(o[0].dtype, o[0].shape),))
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
    if any(not 0 <= d < len(shape) for d in dims) or len(set(dims)) != len(dims):
        raise TypingError(f"dims {dims} do not fit rank {len(shape)}")
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def _reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, _drop(operands[0].shape, attrs["dims"])),)


def _arg_reduce(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(I64, _drop(operands[0].shape, (attrs["dim"],))),)


def _scan(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, operands[0].shape),)


# Half types accumulate in f32. reduce_max and reduce_min give NaN when any element is NaN; on bool
# they are any and all. Integers wrap.
REDUCE = _define("reduce_sum reduce_prod reduce_max reduce_min", "reduce", 1, "dims", _reduce)
# First position of the largest or smallest; NaN counts as both.
ARG_REDUCE = _define("argmax argmin", "reduce", 1, "dim", _arg_reduce)
SCAN = _define("cumsum cumprod", "scan", 1, "dim", _scan)


# ---- contractions ---------------------------------------------------------------------------


def _matmul(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    a, b = operands
    dtype = _same_dtype(operands)
    if a.rank < 2 or a.rank != b.rank or a.shape[:-2] != b.shape[:-2]:
        raise TypingError(f"matmul needs equal batch dims: {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2]:
        raise TypingError(f"matmul inner sizes differ: {a.shape} and {b.shape}")
    return (TensorType(dtype, (*a.shape[:-1], b.shape[-1])),)


def _conv(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    x, weight = operands
    if x.rank != weight.rank or x.rank < 3:
        raise TypingError(f"conv needs (N, C, *) and (O, C / groups, *): {x.shape}, {weight.shape}")
    spatial = zip(
        x.shape[2:], weight.shape[2:], attrs["stride"], attrs["padding"], attrs["dilation"],
        strict=True,
    )  # fmt: skip
    sizes = tuple(
        floordiv(size + 2 * padding - dilation * (kernel - 1) - 1, stride) + 1
        for size, kernel, stride, padding, dilation in spatial
    )
    return (TensorType(_same_dtype(operands), (x.shape[0], weight.shape[0], *sizes)),)


def _attention(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    query, _, value = operands[:3]
    return (TensorType(query.dtype, (*query.shape[:-1], value.shape[-1])),)


_define("matmul", "contract", 2, "", _matmul)  # (B..., M, K) x (B..., K, N); halves sum in f32
_define("conv", "contract", 2, "stride padding dilation groups", _conv)
# attention: query (B, H, M, D), key (B, G, N, D), value (B, G, N, E), with H a multiple of G;
# optional 4th operand: a mask that expands to (B, H, M, N), bool (True: keep) or of query's dtype
# (added). softmax(query @ key^T * scale + mask) @ value; causal keeps n <= m.
_define("attention", "attention", None, "scale causal", _attention)


# ---- gather and scatter ---------------------------------------------------------------------


def _index(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source, indices, dims = operands[0], operands[1:], attrs["dims"]
    if len(indices) != len(dims):
        raise TypingError(f"index: {len(dims)} dims but {len(indices)} index tensors")
    inner = _same_shape(indices)
    kept, at = _drop(source.shape, dims), attrs["at"]
    return (TensorType(source.dtype, (*kept[:at], *inner, *kept[at:])),)


def _gather(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, operands[1].shape),)


def _first(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].dtype, operands[0].shape),)


# Index tensors are i64; negative ones count from the end; one out of range raises IndexError.
# index(x, i0, i1...): `dims` of x (ascending) are looked up; the indices' common shape stands at
# position `at` of the remaining dims.
_define("index", "gather", None, "dims at", _index)
_define("gather", "gather", 2, "dim", _gather)  # as torch.gather
# scatter(x, index, source) and index_put(x, values, i0, i1...): x with the addressed elements
# replaced or combined; mode is "set", "add", "mul", "max" or "min"; values has index's shape.
_define("scatter", "scatter", 3, "dim mode", _first)
_define("index_put", "scatter", None, "dims at mode", _first)


# ---- ATen ----------------------------------------------------------------------------------


def _aten(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return tuple(TensorType(*entry) for entry in attrs["results"])


# aten: an operator that runs as itself. `target` "aten.topk.default"; `args` and `kwargs` are the
# call's arguments with ("tensor", i) standing for operand i; `results` is (dtype, shape, strides)
# of each; `binds` is ((symbol, result, dim), ...) for sizes known only afterwards, with dim -1 for
# the value of a 0-d integer result; `reason` says why it was not lowered.
_define("aten", "aten", None, "target args kwargs results binds reason", _aten)


def is_kind(op: str, kind: str) -> bool:
    """Whether the operator is of that kind: "pointwise", "source", "view", "layout", "reduce", ..."""
    return OPS[op].kind == kind


__all__ = [
    "ARG_REDUCE", "BINARY", "BIT_BINARY", "COMPARE", "FLOAT_BINARY", "FLOAT_UNARY", "OPS",
    "PREDICATE_UNARY", "REDUCE", "SCAN", "UNARY", "Attr", "OpDef", "TypingError", "infer", "is_kind",
]  # fmt: skip
