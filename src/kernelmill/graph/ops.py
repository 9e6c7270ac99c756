"""The operators of the graph IR, a row each, with their meaning and all facts.

Operands of a pointwise operator have one shape: broadcasting is an explicit `expand`. Reductions
drop their dims. Nothing promotes dtypes: casts are explicit. Every result is rounded to its dtype.
The rules are in typing.py; `OpDef` (ir.py) says what the facts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelmill.graph import typing as rule
from kernelmill.graph.ir import (
    Attrs,
    Combine,
    Cost,
    Image,
    OpDef,
    OpKind,
    TensorType,
    TypingRule,
    ZeroSign,
)
from kernelmill.graph.typing import TypingError

OPS: dict[str, OpDef] = {}
"""All operators, by name."""


def infer(op: str, operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Return the result types of `op`. TypingError for misfits, KeyError for an unknown op."""
    definition = OPS[op]
    if definition.arity is not None and len(operands) != definition.arity:
        raise TypingError(f"{op} takes {definition.arity} operands, not {len(operands)}")
    for name in definition.attrs:
        if name not in attrs:
            missing = [name for name in definition.attrs if name not in attrs]
            raise TypingError(f"{op} needs the attributes {', '.join(missing)}")
    if op != "aten":
        for operand in operands:
            if operand.dtype.kind == "opaque":
                dtypes = [operand.dtype for operand in operands]
                raise TypingError(f"{op} cannot compute on {dtypes}")
    return definition.rule(operands, attrs)


_ELEMENTWISE = (OpKind.POINTWISE, OpKind.SOURCE, OpKind.VIEW, OpKind.LAYOUT, OpKind.GATHER)


def _define(
    names: str, kind: OpKind, arity: int | None, attrs: str, typed: TypingRule, **facts: Any
) -> None:
    """Add a row for each of `names`. Attributes ending in "?" are optional."""
    required = tuple(attr for attr in attrs.split() if not attr.endswith("?"))
    optional = tuple(attr[:-1] for attr in attrs.split() if attr.endswith("?"))
    for name in names.split():
        made = OpDef(name, kind, arity, required, typed, optional, **facts)
        OPS[name] = replace(
            made,
            title=made.title or "".join(part.capitalize() for part in name.split("_")),
            transparent=kind in (OpKind.VIEW, OpKind.LAYOUT),
            elementwise=kind in _ELEMENTWISE,
        )


def _pointwise(
    names: str, arity: int, typed: TypingRule, cost: Cost = Cost.SIMPLE, attrs: str = "",
    **facts: Any,
) -> None:  # fmt: skip
    """Add rows of pointwise operators, each an operation of the kernel IR of the same name unless
    another `kernel_op` is given."""
    for name in names.split():
        own = {"kernel_op": name, **facts}
        _define(name, OpKind.POINTWISE, arity, attrs, typed, cost=cost, **own)


# ---- pointwise ------------------------------------------------------------------------------
#
# A function that torch has under the same name takes a row here and a word in kernel/ir.py; one
# that no library has, a file in codegen/math too.

_FINITE, _NONNEGATIVE = Image.FINITE, Image.NONNEGATIVE
_DIVISOR, _ALL = ZeroSign.DIVISOR, ZeroSign.ALL

_pointwise(
    "exp exp2 log log1p log2 log10 tan asin acos acosh atanh erfinv lgamma i0",
    1, rule.float_pointwise, Cost.FUNCTION,
)  # fmt: skip
_pointwise("digamma", 1, rule.float_pointwise, Cost.FUNCTION, zero_sign=_ALL)
_pointwise(
    "expm1 sin cos atan sinh tanh asinh erf", 1, rule.float_pointwise, Cost.FUNCTION, image=_FINITE
)
_pointwise("cosh erfc sigmoid", 1, rule.float_pointwise, Cost.FUNCTION, image=_NONNEGATIVE)
_pointwise("sqrt", 1, rule.float_pointwise, Cost.DIVISION)
_pointwise("rsqrt", 1, rule.float_pointwise, Cost.DIVISION, zero_sign=_ALL)
_pointwise("reciprocal", 1, rule.float_pointwise, Cost.DIVISION, kernel_op=None, zero_sign=_ALL)
_pointwise("floor ceil trunc round", 1, rule.float_pointwise, exact=True, image=_FINITE)
_pointwise("abs", 1, rule.pointwise, exact=True, image=_NONNEGATIVE)
_pointwise("sign", 1, rule.pointwise, kernel_op=None, exact=True, image=_FINITE)
_pointwise("neg", 1, rule.number_pointwise, exact=True, unpacks=True, image=_FINITE)
_pointwise("bit_not", 1, rule.bit_pointwise, kernel_op="not", exact=True)
_pointwise("isnan isinf", 1, rule.predicate, kernel_op=None)
_pointwise("logical_not", 1, rule.predicate, kernel_op=None, kernel_op_bool="not")

# div: true division on floats, truncating on integers; floordiv and mod round down (Python's);
# rem has the sign of the dividend (C's fmod). maximum and minimum give NaN when either is NaN,
# and of equals the second (zeros have signs).
# On integers a division by zero gives 0 (floordiv, mod and rem too), and so does INT_MIN div -1.
# On bool add is or, sub is xor, mul is and.
_pointwise("add", 2, rule.pointwise, kernel_op_bool="or", commutative=True, unpacks=True)
_pointwise("sub", 2, rule.pointwise, kernel_op_bool="xor", unpacks=True)
_pointwise("mul", 2, rule.pointwise, kernel_op_bool="and", commutative=True, unpacks=True)
# multiply_add(a, b, c) is a*b + c with one rounding, of half types too.
_pointwise("multiply_add", 3, rule.float_pointwise, kernel_op="fma", unpacks=True)
_pointwise(
    "maximum", 2, rule.pointwise, kernel_op="max", kernel_op_bool="or", exact=True, commutative=True
)
_pointwise(
    "minimum", 2, rule.pointwise, kernel_op="min", kernel_op_bool="and", exact=True,
    commutative=True,
)  # fmt: skip
_pointwise("div", 2, rule.number_pointwise, Cost.DIVISION, zero_sign=_DIVISOR)
_pointwise("rem", 2, rule.number_pointwise, Cost.DIVISION, exact=True, zero_sign=_DIVISOR)
_pointwise(
    "floordiv", 2, rule.number_pointwise, Cost.DIVISION, title="FloorDiv", kernel_op=None,
    zero_sign=_DIVISOR,
)  # fmt: skip
_pointwise("mod", 2, rule.number_pointwise, Cost.DIVISION, kernel_op=None, zero_sign=_DIVISOR)
_pointwise("pow", 2, rule.float_pointwise, Cost.FUNCTION, zero_sign=_ALL)
_pointwise("atan2", 2, rule.float_pointwise, Cost.FUNCTION, zero_sign=_ALL, image=_FINITE)
_pointwise("hypot", 2, rule.float_pointwise, Cost.FUNCTION, commutative=True, image=_NONNEGATIVE)
_pointwise("copysign", 2, rule.float_pointwise, exact=True, zero_sign=_ALL, image=_FINITE)
_pointwise("nextafter", 2, rule.float_pointwise, Cost.FUNCTION, zero_sign=_ALL)

# shl by the width or more gives 0, shr the sign; so do negative counts.
for _name in ("and", "or", "xor"):
    _pointwise(
        f"bit_{_name}", 2, rule.bit_pointwise, kernel_op=_name, exact=True, commutative=True,
        unpacks=True,
    )  # fmt: skip
_pointwise("shl shr", 2, rule.shift, exact=True, unpacks=True)

_pointwise("eq", 2, rule.predicate, commutative=True)
_pointwise("ne", 2, rule.predicate, kernel_op_bool="xor", commutative=True)
_pointwise("lt le gt ge", 2, rule.predicate)
_pointwise("where", 3, rule.where, title="Select", kernel_op="select", exact=True)
# cast converts the value (floats to integers truncate; to bool: != 0); bitcast keeps the bits.
_pointwise("cast", 1, rule.cast, attrs="dtype", kernel_op=None, unpacks=True)
_pointwise("bitcast", 1, rule.bitcast, attrs="dtype", kernel_op=None, zero_sign=_ALL)


# ---- sources: computed from the index alone --------------------------------------------------

_define("full", OpKind.SOURCE, 0, "value dtype shape", rule.full)  # every element is `value`
_define("iota", OpKind.SOURCE, 0, "dim shape", rule.iota)  # element = its index along `dim`
_define("dim_value", OpKind.SOURCE, 0, "value", rule.dim_value)  # a Dim as data


# ---- views: index arithmetic only -----------------------------------------------------------

# expand is torch's, without -1; the amounts of pad are >= 0, one for each dim.
_define("expand", OpKind.VIEW, 1, "shape", rule.expand, keeps_axes=True)
_define("permute", OpKind.VIEW, 1, "dims", rule.permute, rearranges=True)
_define("reshape", OpKind.VIEW, 1, "shape", rule.reshape, rearranges=True)
_define("slice", OpKind.VIEW, 1, "dim start end step", rule.slice_, keeps_axes=True)
_define("flip", OpKind.VIEW, 1, "dims", rule.flip, keeps_axes=True)
_define("pad", OpKind.VIEW, 1, "low high value", rule.pad, keeps_axes=True, fills=True)
_define("concat", OpKind.VIEW, None, "dim", rule.concat, keeps_axes=True)
# window: sliding windows over `dims`; each becomes the number of positions, and the offsets inside
# the window are appended as new dims. Pooling is a reduction over it, convolution a contraction.
_define(
    "window", OpKind.VIEW, 1, "dims size stride dilation low high value", rule.window,
    keeps_axes=True, fills=True,
)  # fmt: skip
# as_strided: element i... is the operand's row-major element number offset + sum(i * strides).
_define("as_strided", OpKind.VIEW, 1, "shape strides offset", rule.as_strided)
# layout: the same values, stored in memory with these strides (a dense permutation of row-major).
_define("layout", OpKind.LAYOUT, 1, "strides", rule.layout, rearranges=True, keeps_axes=True)


# ---- reductions and scans -------------------------------------------------------------------

# Half types accumulate in f32. reduce_max and reduce_min give NaN when any element is NaN; on bool
# they are any and all. Of zeros of both signs any is the largest: with `ordered` the first in the
# order of the dims. reduce_maxnum is the largest element that is a number, -inf if none is.
# Integers wrap.
for _name, _join, _join_bool, _rule in (
    ("sum", "add", "or", rule.number_reduce),
    ("prod", "mul", "and", rule.number_reduce),
    ("max", "max", "or", rule.reduce),
    ("min", "min", "and", rule.reduce),
):
    _attrs = "dims ordered?" if _name == "max" else "dims"
    _define(
        f"reduce_{_name}", OpKind.REDUCE, 1, _attrs, _rule, kernel_op=_join,
        kernel_op_bool=_join_bool,
    )  # fmt: skip
_define(
    "reduce_maxnum", OpKind.REDUCE, 1, "dims", rule.float_reduce, title="ReduceMax", kernel_op="max"
)
# First position of the largest or smallest; NaN counts as both.
_define("argmax", OpKind.REDUCE, 1, "dim", rule.arg_reduce, title="ArgMax")
_define("argmin", OpKind.REDUCE, 1, "dim", rule.arg_reduce, title="ArgMin")
_define("cumsum", OpKind.SCAN, 1, "dim", rule.scan, kernel_op="add")
_define("cumprod", OpKind.SCAN, 1, "dim", rule.scan, kernel_op="mul")


# ---- orders ---------------------------------------------------------------------------------

# Positions along `dim` in the order of the elements. NaN is larger than all else, -0.0 equals 0.0.
# argsort: of all elements; stable: equal ones as they came. argtopk: of the k largest or smallest,
# without `sorted` in any order. Where nothing else is said, the order of equal elements is torch's.
_define("argsort", OpKind.WHOLE, 1, "dim descending stable", rule.argsort, title="ArgSort")
_define("argtopk", OpKind.WHOLE, 1, "dim k largest sorted", rule.argtopk, title="TopK")
# searchsorted: where each value would stand in a row of ascending ones, before those that equal it,
# or with `right` behind them. Rows are one for all values, or one for each of their rows. What is
# not ascending is searched alike: by halves, of which the right one begins behind the middle, and
# is taken unless that is as large as the value (with `right`: larger).
_define("searchsorted", OpKind.WHOLE, 2, "right dtype", rule.searchsorted, title="SearchSorted")


# ---- recurrent layers -----------------------------------------------------------------------

# recurrent: the states (T, B, N) of a layer in f32, from the inputs' part of the gates (T, B, G*N),
# the weight (N, G*N) and the first state (B, N). Cells are tanh, relu; lstm, with the first cell
# state (B, N) and the last one behind the states, (T + 1, B, N), and maybe a projection (N, P) that
# the next step gets, with a weight (P, G*N) and a first state (B, P); gru, with the bias (N,) of
# what its new gate gets from the state. `backward` begins with the last step.
_define("recurrent", OpKind.WHOLE, None, "cell backward", rule.recurrent, title="Recurrent")


# ---- contractions ---------------------------------------------------------------------------

# matmul: (B..., M, K) x (B..., K, N). Halves sum in f32; with dtype=f32 the sum is not rounded.
# Bytes wrap; i8 with dtype=i32 does not.
# Of f32, `products` is how many products of bf16 may take the place of each one (1 or 3, with their
# errors; 0: none). Six are as exact as f32 and may always.
_define("matmul", OpKind.CONTRACT, 2, "dtype? products?", rule.matmul, title="MatMul")
# grouped_matmul: (M, K) x (G, K, N), ends (G): rows from ends[g - 1] up to ends[g] are multiplied
# with matrix g, those behind the last end are zeros. Ends that descend raise IndexError; one beyond
# M is M.
_define("grouped_matmul", OpKind.CONTRACT, 3, "", rule.grouped_matmul, title="GroupedMatMul")
_define("conv", OpKind.CONTRACT, 2, "stride padding dilation groups dtype?", rule.conv)
# attention: query (B, H, M, D), key (B, G, N, D), value (B, G, N, E), with H a multiple of G;
# optional 4th operand: a mask that expands to (B, H, M, N), bool (True: keep), or of query's dtype
# or, for half types, f32 (added). softmax(query @ key^T * scale + mask) @ value; causal keeps
# n <= m. A row in which every score is -inf gives zeros.
_define("attention", OpKind.ATTENTION, None, "scale causal", rule.attention)
# attention_scores: query (B, H, M, D), key (B, G, N, D) give query @ key^T * scale, (B, H, M, N) in
# f32 (f64 of f64). Pointwise operators of this shape alone may read them, and flex_attention.
# flex_attention(scores, value, [mask], [counts, blocks] up to twice): softmax(scores) @ value of
# scores that were modified in any way; the `masked` one has a bool mask that expands to them, and
# scores where it is False are -inf. With `blocks`, the numbers of rows and keys of a block, row r
# of blocks has to do with the first counts[b, h, r] of the blocks of keys blocks[b, h, r], where
# sizes b and h may be 1, and with no others. Of two such lists the mask holds for the first alone.
# A row in which every score is -inf gives zeros. With `normaliser` a row has an element more,
# the logarithm of the sum of exponentials, and is not rounded to value's type.
_define("attention_scores", OpKind.SCORES, 2, "scale", rule.attention_scores)
_define(
    "flex_attention", OpKind.ATTENTION, None, "masked? blocks? normaliser?", rule.flex_attention
)


# ---- gather and scatter ---------------------------------------------------------------------

# Index tensors are i64; negative ones count from the end; one out of range raises IndexError.
# `unsigned`: negative ones are out of range too (embedding, gather and others of torch).
# index(x, i0, i1...): `dims` of x (ascending) are looked up; the indices' common shape stands at
# position `at` of the remaining dims. gather is torch's.
_define("index", OpKind.GATHER, None, "dims at unsigned?", rule.index, cost=Cost.LOOKUP)
_define("gather", OpKind.GATHER, 2, "dim unsigned?", rule.gather, cost=Cost.LOOKUP)
# scatter(x, index, source) and index_put(x, values, i0, i1...): x with the addressed elements
# replaced or combined, as the `mode`, a Combine, says; values has index's shape.
# `inplace`: x is an updated input, nothing later reads its old value, and the result is its update:
# the lowering writes the addressed elements into the input's memory and copies nothing.
_define("scatter", OpKind.SCATTER, 3, "dim mode unsigned? inplace?", rule.scatter)
_define(
    "index_put", OpKind.SCATTER, None, "dims at mode unsigned? inplace?", rule.index_put,
    title="IndexPut",
)  # fmt: skip

COMBINED_BY = {
    Combine.ADD: OPS["add"],
    Combine.MUL: OPS["mul"],
    Combine.MAX: OPS["maximum"],
    Combine.MIN: OPS["minimum"],
}
"""The operator that a mode combines two elements by; SET takes the new one."""


# ---- ATen ----------------------------------------------------------------------------------

# aten: an operator that runs as itself. `target` "aten.topk.default"; `args` and `kwargs` are the
# call's arguments with ("tensor", i) standing for operand i; `results` is (dtype, shape, strides)
# of each; `binds` is ((symbol, result, dim), ...) for sizes known only afterwards, with dim -1 for
# the value of a 0-d integer result; `reason` says why it was not lowered.
_define("aten", OpKind.ATEN, None, "target args kwargs results binds reason", rule.aten)
