"""Assumptions about sizes taken from the traced call, and torch's guards for them.

A rule may depend on a question that no range and no guard answers (is a divisor positive, are two
sizes equal). Then the answer of the traced call is assumed, and a guard is added to torch's, so
that Dynamo traces calls with another answer again. The program checks it too, since exported
programs have no guards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch import fx

from kernelmill.core.dim import Dim, Expr, Op, Pair, Sym, evaluate, maximum, symbols
from kernelmill.core.scalar import evaluate_scalar, symbols_in
from kernelmill.torch_internals.sizes import functions

sf: Any = functions()
DIVISIONS = (sf.FloorDiv, sf.CeilDiv, sf.Mod, sf.PythonMod, sf.ModularIndexing)
"""torch's functions of integers whose arguments after the first are divisors."""


class SizeGuards:
    """Assumptions about sizes. `pairs` are their equations. Before `follow` none is made."""

    def __init__(self) -> None:
        self.pairs: dict[Pair, None] = {}
        self._conditions: dict[Any, None] = {}
        self._shape_env: Any = None
        self._traced: dict[str, int] = {}
        self._symbols: dict[str, Any] = {}

    def follow(self, shape_env: Any) -> None:
        """Take values from the call that was traced with this ShapeEnv."""
        self._shape_env = shape_env
        for symbol, value in shape_env.backed_var_to_val.items():
            if symbol.is_integer and value.is_Integer:
                self._traced[str(symbol)] = int(value)
                self._symbols[str(symbol)] = symbol

    def compute(self, symbol: Sym, expr: Any) -> None:
        """Add a symbol computed from others; `expr` is torch's expression for it, or None."""
        scalar = symbol.value
        if (
            expr is not None
            and scalar is not None
            and symbols_in(scalar).keys() <= self._traced.keys()
        ):
            self._traced[symbol.name] = int(evaluate_scalar(scalar, self._traced))
            self._symbols[symbol.name] = expr

    def equal(self, a: Dim, b: Dim) -> bool:
        """Assume equality of dims if equal in the traced call, and not 1, which broadcasts."""
        value = self._value(a)
        if value in (None, 1) or value != self._value(b):
            return False
        self._conclude((a, b), sympy.Eq(self._expr(a), self._expr(b)))
        return True

    def differ(self, a: Dim, b: Dim) -> bool:
        """Return whether the dims had different values in the traced call."""
        found, other = self._value(a), self._value(b)
        return found != other and found is not None and other is not None

    def positive(self, dim: Dim) -> bool:
        """Assume that the dim is at least 1 if it was in the traced call."""
        value = self._value(dim)
        if value is None or value < 1:
            return False
        self._conclude((dim, maximum(dim, 1)), sympy.Ge(self._expr(dim), 1))
        return True

    def number(self, dim: Dim) -> int | None:
        """Assume the dim's value in the traced call, and return it."""
        value = self._value(dim)
        if value is not None and not isinstance(dim, int):
            self._conclude((dim, value), sympy.Eq(self._expr(dim), value))
        return value

    def divisors(self, nodes: Iterable[fx.Node]) -> None:
        """Guard that integer arguments are positive if the nodes' sizes have them as divisors.

        Before the first symbol of the graph is made: torch then narrows their ranges.
        """
        ranges = self._shape_env.var_to_range
        signed = {
            symbol
            for name, symbol in self._symbols.items()
            if self._traced[name] >= 1 and symbol in ranges and ranges[symbol].lower < 0
        }
        if signed:
            sizes = {size.node.expr for node in nodes for size in _sizes(node)}
            divisions = {each for size in sizes for each in size.atoms(*DIVISIONS)}
            divisors = {divisor for each in divisions for divisor in each.args[1:]}
            for symbol in sorted(signed & divisors, key=str):
                self._guard(sympy.Ge(symbol, 1))

    def install(self) -> None:
        """Add guards for all assumptions to torch's."""
        for condition in self._conditions:
            self._guard(condition)

    def _guard(self, condition: Any) -> None:
        if not self._shape_env.frozen:  # an exported program is guarded by itself alone
            self._shape_env.evaluate_expr(condition)

    def _conclude(self, pair: Pair, condition: Any) -> None:
        self.pairs[pair] = None
        self._conditions[condition] = None

    def _value(self, dim: Dim) -> int | None:
        """Return the dim's value in the traced call; None if unknown, as for tensors' contents."""
        return evaluate(dim, self._traced) if symbols(dim).keys() <= self._traced.keys() else None

    def _expr(self, dim: Dim) -> Any:
        """Return torch's expression for a dim."""
        if not isinstance(dim, Expr):
            return sympy.Integer(dim)
        return sympy.Add(*(c * sympy.Mul(*map(self._atom, atoms)) for atoms, c in dim.terms))

    def _atom(self, atom: Any) -> Any:
        if not isinstance(atom, Op):
            return self._symbols[atom.name]
        return _FUNCTIONS[atom.kind](self._expr(atom.a), self._expr(atom.b))


_FUNCTIONS: dict[str, Any] = {
    "div": sf.FloorDiv,
    "mod": sf.PythonMod,
    "min": sf.Min,
    "max": sf.Max,
}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        parts: Any = value
        return [leaf for part in parts for leaf in _leaves(part)]
    return [value]


def _sizes(node: fx.Node) -> list[torch.SymInt]:
    """Return the symbolic integers of a node's results: sizes, strides, numbers."""
    found: list[Any] = []
    for value in _leaves(node.meta.get("val")):
        strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
        found += (*value.shape, *value.stride()) if strided else (value,)
    return [size for size in found if isinstance(size, torch.SymInt)]
