"""Arithmetic on sizes as scalars (core/scalar.py), from FX nodes and from sympy's expressions.

Nodes come first: they say in which order a traced program computes, while sympy has put floats
together, so that `n * 0.1 * 3` is `0.3 * n` to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy

from kernelmill.core.dim import Dim
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import FUNCTIONS, Apply, Scalar

# ---- nodes ------------------------------------------------------------------------------------

_TORCH = {
    "sym_float": "float", "sym_int": "int", "sym_ite": "either", "sym_max": "largest",
    "sym_min": "least", "sym_not": "not", "sym_sum": "sum",
}  # fmt: skip


def function_of(target: Any) -> str | None:
    """Return the name in FUNCTIONS of an FX node's function; None if it is no arithmetic."""
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    if module == "torch":
        found = _TORCH.get(name) or "math." + name.removeprefix("_sym_")
    else:
        found = f"math.{name}" if module == "math" else name.strip("_")
    known = module in ("torch", "math", "_operator", "builtins") and found in FUNCTIONS
    return found if known else None


def applied(function: str, arguments: Sequence[Any]) -> Scalar:
    """Return a function applied to an FX node's arguments: a list is summed, None left out."""
    given = arguments[0] if function == "sum" else arguments
    return Apply(function, tuple(argument for argument in given if argument is not None))


# ---- expressions ------------------------------------------------------------------------------

DimOf = Callable[[Any], Dim]


def scalar_of(expr: Any, dim_of: DimOf, numbers: Mapping[Any, Scalar]) -> Scalar:
    """Return the scalar for a sympy expression. `dim_of` returns the dim of an expression, or
    raises UnsupportedError; `numbers` are the scalars of known symbols. UnsupportedError for a
    function without counterpart."""
    if expr in numbers:
        return numbers[expr]
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if expr.is_number:
        return int(expr) if expr.is_Integer else float(expr)
    if expr.is_Symbol:
        return dim_of(expr)
    if expr.is_integer:
        try:
            return dim_of(expr)
        except UnsupportedError:
            pass

    def of(part: Any) -> Scalar:
        return scalar_of(part, dim_of, numbers)

    kind = type(expr).__name__
    if kind == "Piecewise":
        return _piecewise(expr, of)
    if kind == "Mul":
        above, below = sympy.fraction(expr)
        if below != 1:
            whole = "floordiv" if expr.is_integer else "truediv"
            return Apply(whole, (of(above), of(below)))
    convert = _KINDS.get(kind)
    if convert is None:
        name = kind.removeprefix("OpaqueUnaryFn_").removeprefix("BitwiseFn_bitwise_")
        name = name if name in FUNCTIONS else f"math.{name}"
        if name not in FUNCTIONS:
            raise UnsupportedError(f"the number {expr} ({kind})")
        convert = _function(name)
    return convert(*map(of, expr.args))


def _piecewise(expr: Any, of: Callable[[Any], Scalar]) -> Scalar:
    *first, last = [(of(value), of(condition)) for value, condition in expr.args]
    return reduce(lambda no, case: Apply("either", (case[1], case[0], no)), first[::-1], last[0])


def _function(*names: str) -> Callable[..., Scalar]:
    """Return the composition of functions, the last applied first."""

    def convert(*arguments: Scalar) -> Scalar:
        found: Scalar = Apply(names[-1], arguments)
        return reduce(lambda inner, name: Apply(name, (inner,)), names[-2::-1], found)

    return convert


def _folded(name: str) -> Callable[..., Scalar]:
    return lambda *arguments: reduce(lambda a, b: Apply(name, (a, b)), arguments)


def _ceildiv(a: Scalar, b: Scalar) -> Scalar:
    return Apply("neg", (Apply("floordiv", (Apply("neg", (a,)), b)),))


_KINDS: dict[str, Callable[..., Scalar]] = {
    **{kind: _folded(name) for kind, name in (("Mul", "mul"), ("And", "and"), ("Or", "or"))},
    **{kind: _function(name) for kind, name in (
        ("Add", "sum"), ("Max", "largest"), ("Min", "least"),
        ("Abs", "abs"), ("CeilToInt", "math.ceil"), ("CleanDiv", "floordiv"), ("Equality", "eq"),
        ("FloatPow", "pow"), ("FloatTrueDiv", "truediv"), ("FloorDiv", "floordiv"),
        ("FloorToInt", "math.floor"), ("GreaterThan", "ge"), ("IntTrueDiv", "truediv"),
        ("LShift", "lshift"), ("LessThan", "le"), ("Mod", "mod"), ("Not", "not"), ("Pow", "pow"),
        ("PowByNatural", "pow"), ("PythonMod", "mod"), ("RShift", "rshift"),
        ("RoundDecimal", "round"), ("RoundToInt", "round"), ("StrictGreaterThan", "gt"),
        ("StrictLessThan", "lt"), ("ToFloat", "float"), ("TruncToInt", "math.trunc"),
        ("Unequality", "ne"), ("Where", "either"),
    )},
    "CeilDiv": _ceildiv,
    "Identity": lambda a: a,
    "ModularIndexing": lambda a, b, c: Apply("mod", (Apply("floordiv", (a, b)), c)),
    "TruncToFloat": _function("float", "math.trunc"),
}  # fmt: skip
