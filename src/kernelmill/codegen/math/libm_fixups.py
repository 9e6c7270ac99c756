"""Functions of the C library and SLEEF, put right where they overflow, cancel or flush."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.elementary import absolute, copysign, rarely
from kernelmill.core.dtype import F32, F64

Function = Callable[[Reg], Reg]


def _beyond(limit: float) -> Function:
    return lambda x: absolute(x).compare("ogt", limit)


_HARD_F32: dict[str, Function] = {
    "acosh": _beyond(1e18),
    "asinh": _beyond(1e18),
    "cosh": _beyond(88.0),
    "lgamma": lambda x: x.compare("olt", -2.0) | x.compare("ogt", 1e36),
    "sinh": _beyond(88.0),
}
"""Where the f32 functions overflow or cancel too early: the f64 ones are taken there."""


def _far_from_one(x: Reg) -> Reg:
    a = absolute(x)
    return a.compare("olt", 1e-150) | a.compare("ogt", 1e150)


def _log_of_double(x: Reg) -> Reg:
    """acosh and asinh of a large number: log(2 |x|), with the sign of x."""
    return copysign(vector_libm.call("log", [absolute(x)]) + math.log(2), x)


def _asinh_far_from_one(x: Reg) -> Reg:
    return x.code.select(absolute(x).compare("olt", 1.0), x, _log_of_double(x))


_HARD_F64: dict[str, tuple[Function, Function]] = {
    "acosh": (lambda x: x.compare("ogt", 1e150), _log_of_double),
    "asinh": (_far_from_one, _asinh_far_from_one),
    "tan": (lambda x: absolute(x).compare("olt", 1e-150), lambda x: x),
}
"""Where the f64 functions fail, and what is right there."""


def call(op: str, arguments: list[Reg]) -> Reg:
    """`op` of registers of one type, f32 or f64, by a function of the C library or SLEEF."""
    x, usual = arguments[0], vector_libm.call(op, arguments)
    if not vector_libm.has_vectors(x):
        return usual
    if x.dtype == F32 and op in _HARD_F32:
        return rarely(_HARD_F32[op](x), usual, lambda: _through_f64(op, x))
    if x.dtype == F64 and op in _HARD_F64:
        condition, right = _HARD_F64[op]
        return rarely(condition(x), usual, lambda: right(x))
    return usual


def sigmoid(x: Reg) -> Reg:
    """1 / (1 + e^-x), by way of f64 for f32."""
    code = x.code
    if x.dtype == F32:
        return code.convert("fptrunc", sigmoid(code.convert("fpext", x, F64)), F32)
    e = vector_libm.call("exp", [-absolute(x)])
    return code.select(x.compare("olt", 0.0), e, 1.0) / (e + 1.0)


def _through_f64(op: str, x: Reg) -> Reg:
    wide = vector_libm.call(op, [x.code.convert("fpext", x, F64)])
    return x.code.convert("fptrunc", wide, F32)
