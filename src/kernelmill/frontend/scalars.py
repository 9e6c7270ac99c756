"""Scalars that are known only while running: floats and conditions made from sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from kernelmill.core.dtype import BOOL, F64, I64
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.ir import Value
from kernelmill.torch_internals.sizes import functions

sf: Any = functions()
_SQRT = "OpaqueUnaryFn_sqrt"


class ScalarReader:
    """Turns sympy expressions into 0-d values: floats in f64, conditions in bool.

    `floats` holds the values of symbols that came out of `item()`.
    """

    def __init__(self, emitter: Emitter, symbols: SymbolTable, floats: Mapping[Any, Value]) -> None:
        self.e, self.symbols, self.floats = emitter, symbols, floats

    def floating(self, expr: Any, shape_env: Any) -> Value:
        """A float expression. Raises UnsupportedError for a function with no counterpart."""
        if expr in self.floats:
            return self.floats[expr]
        if expr.is_number:
            return self.e.constant(float(expr), F64)
        if isinstance(expr, sf.ToFloat) or expr.is_integer:
            inner = expr.args[0] if isinstance(expr, sf.ToFloat) else expr
            dim = self.symbols.of_expr(inner, shape_env)
            return self.e.cast(self.e.constant(dim, I64), F64)
        op = next((op for kind, op in _FLOAT if isinstance(expr, kind)), None)
        op = "sqrt" if type(expr).__name__ == _SQRT else op
        if op is None:
            raise UnsupportedError(f"the number {expr} ({type(expr).__name__})")
        return self._fold(op, [self.floating(arg, shape_env) for arg in expr.args])

    def condition(self, expr: Any, shape_env: Any) -> Value:
        """A boolean expression over sizes."""
        if expr in (sympy.true, sympy.false):
            return self.e.constant(bool(expr), BOOL)
        if isinstance(expr, sympy.Not):
            return self.e.emit("logical_not", self.condition(expr.args[0], shape_env))
        for kind, op in ((sympy.And, "bit_and"), (sympy.Or, "bit_or")):
            if isinstance(expr, kind):
                return self._fold(op, [self.condition(arg, shape_env) for arg in expr.args])
        op = next((op for kind, op in _RELATION if isinstance(expr, kind)), None)
        if op is None:
            raise UnsupportedError(f"the condition {expr}")
        sides = (self.symbols.as_written(arg, shape_env) for arg in expr.args)
        return self.e.emit(op, *(self.e.constant(side, I64) for side in sides))

    def _fold(self, op: str, values: list[Value]) -> Value:
        if len(values) == 1:
            return self.e.emit(op, values[0])
        result = values[0]
        for value in values[1:]:
            result = self.e.emit(op, result, value)
        return result


_FLOAT: tuple[tuple[Any, str], ...] = (
    (sympy.Add, "add"),
    (sympy.Mul, "mul"),
    ((sf.FloatTrueDiv, sf.IntTrueDiv), "div"),
    ((sympy.Pow, sf.FloatPow), "pow"),
    (sf.TruncToFloat, "trunc"),
)
_RELATION: tuple[tuple[Any, str], ...] = (
    (sympy.Eq, "eq"),
    (sympy.Ne, "ne"),
    (sympy.StrictLessThan, "lt"),
    (sympy.LessThan, "le"),
    (sympy.StrictGreaterThan, "gt"),
    (sympy.GreaterThan, "ge"),
)
