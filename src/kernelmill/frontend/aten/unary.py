"""Elementwise operators of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kernelmill.core.dtype import BOOL, DType
from kernelmill.frontend.emitter import Emitter, NotTranslated, translates
from kernelmill.graph.ir import Value
from kernelmill.graph.ops import OPS
from kernelmill.graph.typing import float_pointwise

_FUNCTIONS = [op for op in OPS.values() if (op.rule, op.arity) == (float_pointwise, 1)]
"""Operators with the name of ATen's."""


def _float_unary(op: str) -> None:
    @translates(op)
    def translate(e: Emitter, x: Value) -> Value:
        return e.emit(op, e.cast(x, e.dtype))


def _rounding(op: str) -> None:
    @translates(op)
    def translate(e: Emitter, x: Value) -> Value:
        return e.emit(op, x) if x.dtype.is_float else x


for _function in _FUNCTIONS:
    if not _function.exact:
        _float_unary(_function.name)
    elif _function.name != "round":  # which may round to decimals
        _rounding(_function.name)


@translates("round.default", "round.decimals")
def round_(e: Emitter, x: Value, *, decimals: int = 0) -> Value:
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return e.emit("round", x)
    if x.dtype.bits < 32:
        raise NotTranslated("rounding a half type to decimals")
    scale = float(10 ** abs(decimals))
    if decimals > 0:
        return e.div(e.emit("round", e.mul(x, scale)), scale)
    return e.mul(e.emit("round", e.div(x, scale)), scale)


def _unless_bool(names: str, op: str) -> None:
    @translates(*names.split())
    def translate(e: Emitter, x: Value) -> Value:
        return x if x.dtype == BOOL else e.emit(op, x)


_unless_bool("abs", "abs")
_unless_bool("sign sgn", "sign")


def _as_it_is(op: str) -> None:
    @translates(op)
    def translate(e: Emitter, x: Value) -> Value:
        return e.emit(op, x)


_as_it_is("neg")
_as_it_is("logical_not")


@translates("positive", "conj_physical", "alias", "detach", "lift_fresh", "lift_fresh_copy", "lift")
@translates("clone", "contiguous", "detach_copy", "alias_copy", "resolve_conj", "resolve_neg")
def same(e: Emitter, x: Value, **layout: object) -> Value:
    return x


@translates("bitwise_not")
def bitwise_not(e: Emitter, x: Value) -> Value:
    return e.emit("logical_not" if x.dtype == BOOL else "bit_not", x)


def _predicate(name: str, test: Callable[[Emitter, Value], Value], else_: bool = False) -> None:
    """Register a test of floats, which other numbers pass or not."""

    @translates(name)
    def translate(e: Emitter, x: Value) -> Value:
        return test(e, x) if x.dtype.is_float else e.constant(else_, BOOL, x.shape)


_predicate("isnan", lambda e, x: e.emit("isnan", x))
_predicate("isinf", lambda e, x: e.emit("isinf", x))
_predicate("isfinite", lambda e, x: e.compare("lt", e.emit("abs", x), math.inf), True)
_predicate("isposinf", lambda e, x: e.compare("eq", x, math.inf))
_predicate("isneginf", lambda e, x: e.compare("eq", x, -math.inf))


@translates("signbit")
def signbit(e: Emitter, x: Value) -> Value:
    if x.dtype == BOOL:
        return e.constant(False, BOOL, x.shape)
    if x.dtype.is_float:
        # copysign distinguishes -0.0 and a negative NaN from the positive ones; a compare does not.
        one = e.constant(1.0, x.dtype, x.shape)
        x = e.emit("copysign", one, x)
    return e.compare("lt", x, 0)


@translates("square")
def square(e: Emitter, x: Value) -> Value:
    return e.emit("bit_and" if x.dtype == BOOL else "mul", x, x)


@translates("nan_to_num")
def nan_to_num(
    e: Emitter,
    x: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    if not x.dtype.is_float:
        return x
    largest = _LARGEST[x.dtype.name]
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    result = e.where(e.emit("isnan", x), 0.0 if nan is None else nan, x)
    result = e.where(e.compare("eq", x, math.inf), high, result)
    return e.where(e.compare("eq", x, -math.inf), low, result)


_LARGEST = {
    "f64": 1.7976931348623157e308,
    "f32": 3.4028234663852886e38,
    "bf16": 3.3895313892515355e38,
    "f16": 65504.0,
}


@translates("_to_copy", "to", "prims.convert_element_type", "prims.device_put", "type_as")
def to(e: Emitter, x: Value, *args: Any, **kwargs: Any) -> Value:
    return e.cast(x, e.dtype)


@translates("view.dtype")
def view_dtype(e: Emitter, x: Value, dtype: DType) -> Value:
    if x.dtype.bits != e.dtype.bits:
        raise NotTranslated("view as a dtype of another size")
    return x if x.dtype == e.dtype else e.emit("bitcast", x, dtype=e.dtype)


@translates("copy")
def copy(e: Emitter, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return e.expand(e.cast(source, e.dtype), x.shape)


@translates("fill.Scalar", "fill.Tensor")
def fill(e: Emitter, x: Value, value: Any) -> Value:
    return e.expand(e.operand(value, e.dtype), x.shape)
