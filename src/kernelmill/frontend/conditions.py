"""Conditions on sizes that a trace assumes, as conditions on dims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from kernelmill.core.dim import Dim, bounds, linear_part, symbols
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import scalar_text
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.torch_internals.export import SizeQuestion
from kernelmill.torch_internals.tracing import all_nodes

_Condition = tuple[str, str, str]

_RELATIONS = (
    (sympy.Eq, "==", False),
    (sympy.Ne, "!=", False),
    (sympy.StrictLessThan, "<", False),
    (sympy.LessThan, "<=", False),
    (sympy.StrictGreaterThan, "<", True),
    (sympy.GreaterThan, "<=", True),
)


def conditions_of(shape_env: Any, known: frozenset[str]) -> tuple[_Condition, ...]:
    """Return the conditions of torch's guards on the symbols `known` to a program: relation, left
    and right side as texts of dims, ("==", "s0 % 8", "0").

    UnsupportedError for a condition that dims cannot express, or on symbols that are not known.
    """
    return conditions_from([guard.expr for guard in shape_env.guards], shape_env, known)


def conditions_from(
    expressions: Sequence[Any], shape_env: Any, known: frozenset[str]
) -> tuple[_Condition, ...]:
    """Return the conditions for expressions that have to be true; divisors that were positive in
    the traced call have to stay so."""
    table = SymbolTable()
    table.guards.follow(shape_env)
    found: dict[_Condition, None] = {}
    for expression in expressions:
        for part in _conjuncts(expression, shape_env):
            if part in (sympy.true, True):
                continue
            free = {str(symbol) for symbol in part.free_symbols}
            replaced = part.xreplace(shape_env.replacements) if free - known else part
            if replaced in (sympy.true, True):
                continue
            if {str(symbol) for symbol in replaced.free_symbols} - known:
                raise UnsupportedError(f"the condition {part} is on sizes that no argument shows")
            found[_condition(replaced, table, shape_env)] = None
    concluded = (("==", str(left), str(right)) for left, right in table.guards.pairs)
    return tuple(dict.fromkeys((*found, *concluded)))


def conditions_asked(
    questions: Sequence[SizeQuestion], shape_env: Any, known: frozenset[str]
) -> tuple[tuple[_Condition, ...], frozenset[str]]:
    """Return the conditions for answers given to the traced code, where no range implies them, and
    the symbols that have to be at least 1. Sizes that no argument shows are checked where they are
    found."""
    table = SymbolTable()
    found: dict[_Condition, None] = {}
    positive: set[str] = set()
    for relation, *sides in questions:
        left, right = (_side(side, table, shape_env, known) for side in sides)
        if relation == "<=":
            relation, left = "<", left - 1
        if relation == "!=" and _at_least_zero(left - right):
            left, right = right, left
        low, names = bounds(right - left)[0], symbols(right - left)
        if not names or (low is not None and low >= 1):
            continue
        only = linear_part(right - left, next(iter(names))) if len(names) == 1 else None
        if only is not None and only[1] == 0 == low and relation != "==":
            positive |= names.keys() & known
        elif names.keys() <= known:
            found[relation, str(left), str(right)] = None
    return tuple(found), frozenset(positive)


def _at_least_zero(dim: Dim) -> bool:
    low = bounds(dim)[0]
    return low is not None and low >= 0


def _side(side: Any, table: SymbolTable, shape_env: Any, known: frozenset[str]) -> Dim:
    if isinstance(side, int):
        return side
    if {str(symbol) for symbol in side.free_symbols} - known:
        side = side.xreplace(shape_env.replacements)
    return table.as_written(side, shape_env)


def _conjuncts(expr: Any, shape_env: Any) -> Sequence[Any]:
    """Return the conjuncts of a condition. An alternative is narrowed to the part that held in the
    trace: that refuses more sizes than necessary, but accepts no wrong one."""
    if isinstance(expr, sympy.Or):
        hints = shape_env.backed_var_to_val
        held = [part for part in expr.args if part.xreplace(hints) in (sympy.true, True)]
        return _conjuncts(held[0], shape_env) if held else (expr,)
    if isinstance(expr, sympy.And):
        return [part for each in expr.args for part in _conjuncts(each, shape_env)]
    if isinstance(expr, sympy.Not) and isinstance(expr.args[0], (sympy.And, sympy.Or)):
        inner = expr.args[0]
        other = sympy.Or if isinstance(inner, sympy.And) else sympy.And
        return _conjuncts(other(*map(sympy.Not, inner.args)), shape_env)
    return (expr,)


def _condition(expr: Any, table: SymbolTable, shape_env: Any) -> _Condition:
    for kind, relation, turned in _RELATIONS:
        if isinstance(expr, kind):
            left, right = (scalar_text(table.scalar(arg, shape_env)) for arg in expr.args)
            return (relation, right, left) if turned else (relation, left, right)
    return "==", scalar_text(table.scalar(expr, shape_env)), "1"


_aten = torch.ops.aten
_SQUEEZES = (_aten.squeeze, _aten.squeeze_, _aten.squeeze_copy)


def squeezed(gm: fx.GraphModule) -> Iterator[tuple[int, Any]]:
    """Yield the dims that the squeezes of a graph test, with their sizes, symbolic or not."""
    for node in all_nodes(gm):
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _SQUEEZES or not isinstance(node.args[0], fx.Node):
            continue
        shape = node.args[0].meta["val"].shape
        dims: Any = node.args[1] if len(node.args) > 1 and shape else range(len(shape))
        for dim in dims if isinstance(dims, Iterable) else (dims,):
            yield dim, shape[dim]
