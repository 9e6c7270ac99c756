"""Elementwise operators of two or three operands: arithmetic, comparison, logic, selection."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import Expr, bounds
from kernelmill.core.dtype import BF16, BOOL, F16, U8, DType
from kernelmill.frontend.emitter import (
    Computed,
    Emitter,
    NotTranslated,
    Number,
    Operand,
    promote,
    translates,
    wrap,
)
from kernelmill.graph.ir import Attr, Value


def _arithmetic(e: Emitter, op: str, a: Operand, b: Operand) -> Value:
    """Emit add, sub, mul or div in the promoted dtype, rounded once."""
    a, b = _as_values(e, (a, b), _compute_dtype(e, op, (a, b)))
    return e.cast(e.pointwise(op, a, b), e.dtype)


def _compute_dtype(e: Emitter, op: str, operands: tuple[Operand, ...]) -> DType:
    """Return the dtype to compute in: with half results eager keeps numbers and 0-d tensors
    unrounded in products and quotients."""
    dtype = promote(operands)
    if not dtype.is_float and e.dtype.is_float:
        dtype = e.dtype
    scalars = any(not isinstance(x, Value) or not x.shape for x in operands)
    return dtype.compute if scalars and op in ("mul", "div") else dtype


def _as_values(e: Emitter, operands: tuple[Operand, ...], dtype: DType) -> tuple[Value, ...]:
    return tuple(e.operand(x, dtype) for x in operands)


def _fused(
    e: Emitter, other: Operand, alpha: Number, added: Operand, sign: int = 1
) -> Value | None:
    """Emit sign * alpha * other + added where eager multiplies by `alpha`, rounded to the result's
    type, and adds with one rounding: a product too large for the type does not make the sum
    infinite."""
    if isinstance(alpha, (Expr, Computed)) or alpha == 1:
        return None
    if not e.dtype.is_float or not isinstance(other, Value):
        return None
    return _multiply_add(e, other, e.constant(sign * alpha, e.dtype), added)


def _multiply_add(e: Emitter, a: Operand, b: Operand, c: Operand) -> Value:
    """Emit a * b + c in the type that eager computes in."""
    a, b, c = _as_values(e, (a, b, c), e.dtype.compute)
    return e.cast(e.pointwise("multiply_add", a, b, c), e.dtype)


def _scaled(e: Emitter, other: Operand, alpha: Number, dtype: DType) -> Operand:
    """Return alpha * other, as the second operand of add and sub."""
    if not isinstance(alpha, (Expr, Computed)):
        if alpha == 1:
            return other
        if not isinstance(other, (Value, Expr, Computed)):
            return other * alpha
    return e.mul(e.operand(other, dtype), alpha)


@translates("add.Tensor", "add.Scalar")
def add(e: Emitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    if e.dtype == BOOL:
        if isinstance(alpha, Expr):
            raise NotTranslated("a sum of bools times a number known only while running")
        return _logical(e, "bit_or", a, b if alpha else False)
    _refuse_bools(e, alpha)
    fused = _fused(e, b, alpha, a)
    return fused or _arithmetic(e, "add", a, _scaled(e, b, alpha, e.dtype.compute))


@translates("sub.Tensor", "sub.Scalar")
def sub(e: Emitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    _refuse_bools(e, b, alpha)
    fused = _fused(e, b, alpha, a, -1)
    return fused or _arithmetic(e, "sub", a, _scaled(e, b, alpha, e.dtype.compute))


@translates("rsub.Tensor", "rsub.Scalar")
def rsub(e: Emitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    _refuse_bools(e, b, alpha)
    fused = _fused(e, a, alpha, b, -1)
    return fused or _arithmetic(e, "sub", b, _scaled(e, a, alpha, e.dtype.compute))


def _refuse_bools(e: Emitter, *numbers: Operand) -> None:
    """Leave bools to ATen, and so to its errors: a bool for a number, or a difference of bools, as
    in some of torch's own traces of writes to expanded views."""
    if e.dtype == BOOL or any(isinstance(number, bool) for number in numbers):
        raise NotTranslated("torch subtracts no bools and multiplies by none")


@translates("mul.Tensor", "mul.Scalar")
def mul(e: Emitter, a: Operand, b: Operand) -> Value:
    if e.dtype == BOOL:
        return _logical(e, "bit_and", a, b)
    return _arithmetic(e, "mul", a, b)


@translates("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(e: Emitter, a: Operand, b: Operand) -> Value:
    return _arithmetic(e, "div", a, b)


@translates("div.Tensor_mode", "div.Scalar_mode")
def div_mode(e: Emitter, a: Operand, b: Operand, *, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return div(e, a, b)
    if rounding_mode == "floor":
        return _division(e, "floordiv", a, b)
    if not e.dtype.is_float:
        return _integer_division(e, "div", a, b)
    quotient = e.pointwise("div", *_as_values(e, (a, b), _compute_dtype(e, "div", (a, b))))
    return e.cast(e.emit("trunc", quotient), e.dtype)


def _division(e: Emitter, op: str, a: Operand, b: Operand) -> Value:
    if not e.dtype.is_float:
        return _integer_division(e, op, a, b)
    # Of numbers, eager takes quotients unrounded, and rests not.
    operands = _as_values(e, (a, b), e.dtype.compute if op == "floordiv" else e.dtype)
    return e.cast(e.pointwise(op, *operands), e.dtype)


def _divides(name: str, op: str) -> None:
    @translates(name)
    def translate(e: Emitter, a: Operand, b: Operand) -> Value:
        return _division(e, op, a, b)


_divides("floor_divide", "floordiv")
_divides("remainder", "mod")
_divides("fmod", "rem")


def _integer_division(e: Emitter, op: str, a: Operand, b: Operand) -> Value:
    """Emit a division if the divisor cannot be zero: eager raises ZeroDivisionError."""
    if not _never_zero(e, b):
        raise NotTranslated("integer division by a tensor may have to raise")
    left, right = e.broadcast(*_as_values(e, (a, b), e.dtype))
    if op in ("div", "floordiv") and e.dtype != U8 and _number(b) == -1:
        # Eager's least number wraps; our division makes 0 of it.
        return e.emit("neg", left)
    return e.emit(op, left, right)


def _never_zero(e: Emitter, divisor: Operand) -> bool:
    if isinstance(divisor, Expr):
        high = bounds(divisor)[1]
        return (high is not None and high < 0) or e.symbols.positive(divisor)
    return _number(divisor) not in (None, 0)


def _number(operand: Operand) -> Attr:
    """Return the constant that an operand is everywhere, or None if it is not known to be one."""
    if isinstance(operand, Value):
        return operand.number
    return None if isinstance(operand, (Expr, Computed)) else operand


# ---- powers -----------------------------------------------------------------------------------


@translates("pow.Tensor_Scalar")
def pow_scalar(e: Emitter, x: Value, exponent: Number) -> Value:
    if isinstance(exponent, (Expr, Computed)):
        return power(e, x, exponent)
    x = e.cast(x, e.dtype)
    if exponent == 0:
        return e.constant(1, e.dtype, x.shape)
    if exponent == 1:
        return x
    if not e.dtype.is_float:
        return _integer_power(e, x, exponent)
    if exponent in (0.5, -0.5) and e.dtype != F16:  # eager has pow's zeros and infinities there
        return e.emit("sqrt" if exponent > 0 else "rsqrt", x)
    if exponent in (2, 3, -1, -2):
        wide = e.wide(x)
        result = wide
        for _ in range(abs(int(exponent)) - 1):
            result = e.mul(result, wide)
        return e.cast(e.emit("reciprocal", result) if exponent < 0 else result, e.dtype)
    return e.emit("pow", x, e.constant(exponent, e.dtype, x.shape))


def _integer_power(e: Emitter, x: Value, exponent: bool | int | float) -> Value:
    if not isinstance(exponent, int) or not 0 < exponent <= 64 or e.dtype == BOOL:
        raise NotTranslated("integer power of this exponent")
    result: Value | None = None
    square, left = x, int(exponent)
    while True:
        if left & 1:
            result = square if result is None else e.mul(result, square)
        left >>= 1
        if not left:
            assert result is not None
            return result
        square = e.mul(square, square)


@translates("pow.Tensor_Tensor", "pow.Scalar")
def power(e: Emitter, x: Operand, exponent: Operand) -> Value:
    if not e.dtype.is_float:
        raise NotTranslated("integer power of a tensor exponent")
    return e.pointwise("pow", *_as_values(e, (x, exponent), e.dtype))


# ---- the rest of the floating ones -----------------------------------------------------------


def _promoted(names: str, op: str) -> None:
    @translates(*names.split())
    def translate(e: Emitter, a: Operand, b: Operand) -> Value:
        return _logical(e, op, a, b)


_promoted("atan2", "atan2")
_promoted("hypot", "hypot")
_promoted("copysign.Tensor copysign.Scalar", "copysign")
_promoted("nextafter", "nextafter")


def _extremes(names: str, ignoring_nan: str, op: str, of_bools: str) -> None:
    """Register the larger or smaller of two, and what takes a number before a NaN."""

    @translates(*names.split())
    def pick(e: Emitter, a: Value, b: Value) -> Value:
        return e.pointwise(of_bools if e.dtype == BOOL else op, *e.promoted(a, b))

    @translates(ignoring_nan)
    def translate(e: Emitter, a: Value, b: Value) -> Value:
        return _ignoring_nan(e, pick, a, b)


_extremes("maximum max.other", "fmax", "maximum", "bit_or")
_extremes("minimum min.other", "fmin", "minimum", "bit_and")


def _ignoring_nan(
    e: Emitter, pick: Callable[[Emitter, Value, Value], Value], a: Value, b: Value
) -> Value:
    a, b = e.broadcast(*e.promoted(a, b))
    # Of zeros of either sign eager takes the first, in bfloat16 the second.
    result = pick(e, a, b) if e.dtype == BF16 else pick(e, b, a)
    if not e.dtype.is_float:
        return result
    result = e.where(e.emit("isnan", a), b, result)
    return e.where(e.emit("isnan", b), a, result)


# ---- comparison, bits and logic ---------------------------------------------------------------


def _comparison(op: str) -> None:
    @translates(f"{op}.Tensor", f"{op}.Scalar")
    def translate(e: Emitter, a: Operand, b: Operand) -> Value:
        return e.pointwise(op, *e.promoted(a, b))


for _op in "eq ne lt le gt ge".split():
    _comparison(_op)


def _logical(e: Emitter, op: str, a: Operand, b: Operand) -> Value:
    return e.pointwise(op, *_as_values(e, (a, b), e.dtype))


_promoted("bitwise_and __and__", "bit_and")
_promoted("bitwise_or __or__", "bit_or")
_promoted("bitwise_xor __xor__", "bit_xor")
_promoted("logical_and", "bit_and")
_promoted("logical_or", "bit_or")
_promoted("logical_xor", "bit_xor")


def _shift(names: str, op: str) -> None:
    @translates(*names.split())
    def translate(e: Emitter, a: Operand, b: Operand) -> Value:
        if not e.dtype.is_integer:
            raise NotTranslated("shift of a type that is no integer")
        return _logical(e, op, a, b)


_shift("bitwise_left_shift __lshift__", "shl")
_shift("bitwise_right_shift __rshift__", "shr")


# ---- selection --------------------------------------------------------------------------------


@translates("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(e: Emitter, condition: Value, a: Operand, b: Operand) -> Value:
    return e.pointwise(
        "where", e.cast(condition, BOOL), e.operand(a, e.dtype), e.operand(b, e.dtype)
    )


@translates("masked_fill")
def masked_fill(e: Emitter, x: Value, mask: Value, value: Operand) -> Value:
    return e.pointwise("where", e.cast(mask, BOOL), e.operand(value, e.dtype), x)


@translates("clamp", "clamp_min", "clip")
def clamp(e: Emitter, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    x = e.cast(x, e.dtype)
    if low is not None:
        x = _within(e, "maximum", x, low)
    return x if high is None else _within(e, "minimum", x, high)


def _within(e: Emitter, op: str, x: Value, bound: Operand) -> Value:
    """Emit a clamp. Of zeros of either sign eager takes x for numbers as bounds, else the bound."""
    pair = x, e.operand(bound, e.dtype)
    return e.pointwise(op, *(pair if isinstance(bound, Value) else reversed(pair)))


@translates("clamp_max")
def clamp_max(e: Emitter, x: Value, high: Operand) -> Value:
    return clamp(e, x, None, high)


@translates("addcmul")
def addcmul(e: Emitter, x: Value, a: Value, b: Value, *, value: Number = 1) -> Value:
    x, a, b = (e.operand(v, e.dtype.compute) for v in (x, a, b))
    if e.dtype.is_float:
        return _multiply_add(e, e.mul(a, value), b, x)
    return e.cast(e.add(x, e.mul(e.mul(a, value), b)), e.dtype)


@translates("addcdiv")
def addcdiv(e: Emitter, x: Value, a: Value, b: Value, *, value: Number = 1) -> Value:
    x, a, b = (e.operand(v, e.dtype.compute) for v in (x, a, b))
    return e.cast(e.add(x, e.div(e.mul(a, value), b)), e.dtype)


@translates("linalg_cross")
def cross(e: Emitter, a: Value, b: Value, *, dim: int = -1) -> Value:
    """Emit rounded products and their difference, as eager has for half types."""
    a, b = (e.expand(e.cast(x, e.dtype), e.shape) for x in (a, b))
    dim = wrap(dim, len(e.shape))

    def turned(x: Value, places: int) -> Value:
        parts = [e.slice(x, dim, places, 3), e.slice(x, dim, 0, places)]
        return e.emit("concat", *parts, dim=dim)

    left = e.mul(turned(a, 1), turned(b, 2))
    return e.sub(left, e.mul(turned(a, 2), turned(b, 1)))


@translates("lerp.Tensor", "lerp.Scalar")
def lerp(e: Emitter, start: Value, end: Value, weight: Operand) -> Value:
    """Interpolate from the nearer end: weight 1 gives `end` (aten/src/ATen/native/Lerp.h)."""
    start, end, w = (e.operand(v, e.dtype.compute) for v in (start, end, weight))
    start, end, w = e.broadcast(start, end, w)
    difference = e.sub(end, start)
    near_start = e.add(start, e.mul(w, difference))
    one = e.constant(1, w.dtype, w.shape)
    near_end = e.sub(end, e.mul(difference, e.sub(one, w)))
    return e.cast(e.where(e.compare("lt", e.emit("abs", w), 0.5), near_start, near_end), e.dtype)
