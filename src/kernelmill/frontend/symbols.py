"""Conversion of torch's symbolic sizes (sympy expressions) to dims, and of arithmetic on sizes,
from FX nodes and from sympy's expressions, to scalars (core/scalar.py).

FX nodes are preferred: they keep the order of a traced program's operations, while sympy combines
floats, so that `n * 0.1 * 3` becomes `0.3 * n`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import sympy
import torch

from kernelmill.core.dim import (
    Dim,
    Equations,
    Pair,
    Sym,
    bounds,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
    product,
    provably_less,
    sym,
)
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import (
    DEEPEST,
    FUNCTIONS,
    Apply,
    Scalar,
    depth_of,
    evaluate_scalar,
    scalar_text,
    symbols_in,
)
from kernelmill.frontend.size_guards import DIVISIONS, SizeGuards
from kernelmill.torch_internals.sizes import functions, refuse, size_functions

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


sf: Any = functions()
_SMALLEST = 2**63  # with its sign changed
_NO_BOUND = 2**62  # torch writes "no upper bound" as int_oo or as a number about 2**63


class SymbolTable:
    """The dims of one graph: each torch symbol is one symbol of ours, with its range. An expression
    without form as a dim becomes a computed symbol, passed to `declare`; without it
    UnsupportedError. `numbers` are the scalars of torch's non-integer expressions met so far.

    Once `assume` was called, equal sizes that torch writes differently become one dim. Assumptions
    from the sizes of the traced call alone are in `guards`. With `ones` a size that torch takes for
    2 at least may be 1.
    """

    def __init__(self, declare: Callable[[Sym], None] | None = None, ones: bool = False) -> None:
        self.guards, self._ones = SizeGuards(), ones
        self.numbers: dict[Any, Scalar] = {}
        self._declare = declare
        self._strict = declare is None
        self._computed: dict[str, Dim] = {}
        self._dims: dict[Any, Dim] = {}
        self._equations = Equations()
        self._required: dict[Pair, None] = {}
        self._assuming = False

    def assume(self, shape_env: Any, known: Collection[str]) -> None:
        """Assume the equations of torch's guards over the symbols `known`."""
        self._assuming = self._strict = True
        parts = [part for guard in shape_env.guards for part in sympy.And.make_args(guard.expr)]
        for expr in parts:
            names = {str(symbol) for symbol in expr.free_symbols}
            if isinstance(expr, sympy.Eq) and names <= set(known):
                with suppress(UnsupportedError):
                    left, right = (self.as_written(side, shape_env) for side in expr.args)
                    self._equations.add(left, right)
        self._assuming = self._strict = False

    def equal(self, a: Dim, b: Dim) -> bool:
        """Return whether two dims are known to be equal, or were in the traced call and not 1
        there: then a guard, ours if not torch's, protects the assumption."""
        return self._equations.equal(a, b) or self.guards.equal(a, b)

    def differ(self, a: Dim, b: Dim) -> bool:
        """Return whether the dims differed in the traced call."""
        return a != b and self.guards.differ(a, b)

    def positive(self, dim: Dim) -> bool:
        """Return whether a dim is known to be at least 1, or was in the traced call."""
        low = bounds(dim)[0]
        return (low is not None and low >= 1) or self.guards.positive(dim)

    def require_positive(self, dim: Dim) -> None:
        """Make the program refuse calls in which a dim is below 1, whether sizes or contents set
        it."""
        if not self.positive(dim):
            self._required[dim, maximum(dim, 1)] = None

    def require_equal(self, a: Dim, b: Dim) -> None:
        """Make the program refuse calls in which two dims differ."""
        if a != b:
            self._required[a, b] = None

    def less(self, a: Dim, b: Dim) -> bool:
        """Return whether a < b is known, or was so in the traced call."""
        return provably_less(a, b) or self.guards.positive(b - a)

    def assumed(self) -> list[Pair]:
        """Return the equations that dims of this table rely on, and those required besides."""
        return list({**self._equations.used, **self.guards.pairs, **self._required})

    def dim(self, size: int | torch.SymInt) -> Dim:
        """Return the dim for a size."""
        if isinstance(size, int):
            return int(size)
        node: Any = size.node
        return self.of_expr(node.expr, node.shape_env)

    def dims(self, sizes: Any) -> tuple[Dim, ...]:
        """Return the dims of a shape or of strides."""
        return tuple(self.dim(size) for size in sizes)

    def argument(self, size: int | torch.SymInt) -> Dim:
        """Return the dim for an argument's size, or an integer argument: one without form as a dim
        is a symbol whose value each call gives."""
        if isinstance(size, torch.SymInt) and not self.says(size):
            node: Any = size.node
            low = _least(node.expr, node.shape_env)
            self._dims[node.expr] = sym(f"given{len(self._dims)}", low)
        return self.dim(size)

    def says(self, size: torch.SymInt) -> bool:
        """Return whether a size has a form as a dim, with known computed symbols. UnsupportedError
        if torch's functions of sizes are unknown."""
        if not size_functions.works:
            refuse()
        node: Any = size.node
        strict, self._strict = self._strict, True
        try:
            self.as_written(node.expr, node.shape_env)
        except UnsupportedError:
            return False
        finally:
            self._strict = strict
        return True

    def scalar(self, expr: Any, shape_env: Any) -> Scalar:
        """Return the scalar for a sympy expression."""
        strict, self._strict = self._strict, True
        try:
            found = scalar_of(expr, lambda part: self.as_written(part, shape_env), self.numbers)
        finally:
            self._strict = strict
        if depth_of(found) > DEEPEST // 2:  # further functions would nest around it
            raise UnsupportedError(f"the number {expr}, which is computed in too many steps")
        return found

    def computed(
        self,
        scalar: Scalar,
        expr: Any = None,
        shape_env: Any = None,
        least: int = -_SMALLEST,
        most: Dim | None = None,
    ) -> Dim:
        """Return a symbol in this range with this integer as its value, for the sympy expression
        `expr` if given. UnsupportedError without `declare`."""
        if self._declare is None:
            raise UnsupportedError(f"{scalar_text(scalar)} is no size")
        if not symbols_in(scalar):
            return int(evaluate_scalar(scalar, {}))
        text = scalar_text(scalar)
        if text not in self._computed:
            low = least if expr is None else _least(expr, shape_env)
            symbol = Sym(f"calc{len(self._computed)}", low, most, scalar)
            self._declare(symbol)
            self._computed[text] = of_atom(symbol)
            self.guards.compute(symbol, expr)
        if expr is not None:
            self._dims[expr] = self._computed[text]
        return self._computed[text]

    def clamped(self, index: Dim, size: Dim) -> Dim:
        """Return a slice's start or end in [0, size], counted from the end when negative."""
        low, high = bounds(index)
        if low is not None and low >= 0:
            return minimum(index, size)
        before = maximum(size + index, 0)
        if high is not None and high < 0:
            return before
        cases = Apply("lt", (index, 0)), before, minimum(index, size)
        return self.computed(Apply("either", cases), least=0, most=size)

    def define(self, size: int | torch.SymInt, dim: Dim) -> None:
        """Set the dim of a size that is a symbol not met so far."""
        expr: Any = size.node.expr if isinstance(size, torch.SymInt) else None
        if expr is not None and expr.is_Symbol and expr not in self._dims:
            self._dims[expr] = dim

    def fresh(self, name: str) -> Dim:
        """Return a new symbol for an argument that is not one symbol."""
        return sym("arg_" + re.sub(r"\W+", "_", name), -_SMALLEST)

    def of_expr(self, expr: Any, shape_env: Any) -> Dim:
        """Return the dim of a sympy expression over the symbols of `shape_env`."""
        return self._equations.reduce(self.as_written(expr, shape_env))

    def as_written(self, expr: Any, shape_env: Any) -> Dim:
        """Return the dim as `of_expr`, without assumptions, for conditions that check these."""
        found = self._dims.get(expr)
        if found is None:
            try:
                found = self._convert(expr, shape_env)
            except UnsupportedError:
                if self._strict:
                    raise
                found = self.computed(self.scalar(expr, shape_env), expr, shape_env)
            self._dims[expr] = found
        return found

    def _convert(self, expr: Any, shape_env: Any) -> Dim:
        if expr.is_Integer:
            return int(expr)
        if not size_functions.works:
            refuse()
        if expr.is_Symbol:
            low, high = range_of(expr, shape_env)
            return sym(str(expr), 1 if low == 2 and self._ones else low, high)
        if isinstance(expr, (sf.CeilToInt, sf.FloorToInt, sf.TruncToInt)):
            return self._rounded(expr, shape_env)
        if expr.is_Mul:
            above, below = sympy.fraction(expr)
            if below != 1:
                return self._divide(
                    self.as_written(above, shape_env), self.as_written(below, shape_env)
                )
        convert = next((f for kind, f in _CONVERT if isinstance(expr, kind)), None)
        if convert is None:
            raise UnsupportedError(f"size {expr} has no form as a dim ({type(expr).__name__})")
        args = [self.as_written(arg, shape_env) for arg in expr.args]
        if isinstance(expr, DIVISIONS):
            args[1:] = map(self._divisor, args[1:])
        return convert(*args)

    def _divide(self, a: Dim, b: Dim) -> Dim:
        return floordiv(a, self._divisor(b))

    def _divisor(self, dim: Dim) -> Dim:
        """Return the divisor, at least 1. One that may be zero by its range was not: Python would
        have raised in tracing, and for other sizes torch's guards do. One that may be negative must
        have been positive in the traced call."""
        low = bounds(dim)[0]
        if (low is None or low < 0) and (self._assuming or not self.guards.positive(dim)):
            raise UnsupportedError(f"a size is divided by {dim}, which may be negative")
        return maximum(dim, 1)

    def _rounded(self, expr: Any, shape_env: Any) -> Dim:
        """Return a size computed through a float: `int(n / 2)`, `int(n * 2.0)`."""
        (inner,) = expr.args
        if isinstance(inner, sf.IntTrueDiv):
            above, below = (self.as_written(arg, shape_env) for arg in inner.args)
            if isinstance(expr, sf.CeilToInt):
                return self._divide(above + below - 1, below)
            if isinstance(expr, sf.FloorToInt) or (bounds(above)[0] or 0) >= 0:
                return self._divide(above, below)
        if inner.is_Mul and all(_integral(arg) for arg in inner.args):
            return product(self.as_written(_unfloat(arg), shape_env) for arg in inner.args)
        if isinstance(inner, sf.ToFloat):
            return self.as_written(inner.args[0], shape_env)
        raise UnsupportedError(f"size {expr} goes through a float that is no whole number")


def _integral(expr: Any) -> bool:
    return isinstance(expr, sf.ToFloat) or (expr.is_Float and float(expr).is_integer())


def _unfloat(expr: Any) -> Any:
    return expr.args[0] if isinstance(expr, sf.ToFloat) else sympy.Integer(int(float(expr)))


def range_of(symbol: Any, shape_env: Any) -> tuple[int, int | None]:
    """Return the bounds of a sympy symbol of `shape_env`; None for no upper one. UnsupportedError
    if torch's functions of sizes, or its infinity, are unknown."""
    if not size_functions.works:
        refuse()
    found = shape_env.var_to_range.get(symbol)
    if found is None:
        return 0, None
    low = -_NO_BOUND if found.lower in (-sf.int_oo, -sympy.oo) else int(found.lower)
    if sf.is_unbacked(symbol):
        # torch takes the most elements a result can have from one operand, where others broadcast.
        return low, None
    high = None if found.upper in (sf.int_oo, sympy.oo) else int(found.upper)
    return low, None if high is not None and high >= _NO_BOUND else high


def _least(expr: Any, shape_env: Any) -> int:
    """Return torch's lower bound of an integer expression if it is at least zero."""
    try:
        low = shape_env.bound_sympy(expr).lower
    except RecursionError:  # of a power of numbers without bounds
        return -_SMALLEST
    return int(low) if low.is_Integer and low >= 0 else -_SMALLEST


def _sum(*args: Dim) -> Dim:
    total: Dim = 0
    for arg in args:
        total = total + arg
    return total


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnsupportedError(f"a size is raised to the power {exponent}")
    return product([base] * exponent)


def _fold(function: Callable[[Dim, Dim], Dim]) -> Callable[..., Dim]:
    def folded(*args: Dim) -> Dim:
        result = args[0]
        for arg in args[1:]:
            result = function(result, arg)
        return result

    return folded


_CONVERT: tuple[tuple[Any, Callable[..., Dim]], ...] = (
    (sympy.Add, _sum),
    (sympy.Mul, lambda *args: product(args)),
    ((sympy.Pow, sf.PowByNatural), _power),
    (sf.FloorDiv, floordiv),
    ((sf.Mod, sf.PythonMod), mod),
    (sf.ModularIndexing, lambda a, b, c: mod(floordiv(a, b), c)),
    (sf.CeilDiv, ceildiv),
    ((sf.Max, sympy.Max), _fold(maximum)),
    ((sf.Min, sympy.Min), _fold(minimum)),
    (sf.Identity, lambda a: a),
)
