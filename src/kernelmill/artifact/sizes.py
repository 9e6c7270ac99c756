"""Checks of the sizes of a call against the conditions of its trace."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from kernelmill.artifact.manifest import CallSpec, Condition, Source
from kernelmill.core.dim import Dim, of_atom, sym, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.expr import Sym
from kernelmill.core.scalar import (
    evaluate_scalar,
    parse_scalar,
    roots,
    scalar_text,
    spelled,
    symbols_in,
)
from kernelmill.plan.ir import Plan, SymbolInput, TensorInput
from kernelmill.runtime.calls.engine import CheckSizes

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def broken_sizes(spec: CallSpec, names: Iterable[str]) -> Callable[[Mapping[str, int]], str]:
    """Return a function that describes the first limit or condition broken by values of these
    symbols, by name; "" for none."""
    scope = {name: sym(name) for name in names}
    conditions = [
        (r, parse_scalar(a, scope), parse_scalar(b, scope)) for r, a, b in spec.conditions
    ]

    def broken(values: Mapping[str, int]) -> str:
        for limit in spec.limits:
            value = values.get(limit.symbol, limit.low)
            if value < limit.low or (limit.high is not None and value > limit.high):
                return f"{limit.where} is {value}, and has to be {limit.text()}"
        for relation, left, right in conditions:
            if not _RELATIONS[relation](*(evaluate_scalar(s, values) for s in (left, right))):
                sides = scalar_text(left), scalar_text(right)
                return f"sizes do not fit: {f' {relation} '.join(sides)} does not hold"
        return ""

    return broken


def asked_symbols(spec: CallSpec, plan: Plan) -> frozenset[str]:
    """Return the symbols of a plan that a limit, a condition or an equation names."""
    scope = {symbol.name: sym(symbol.name) for symbol in plan.symbols}
    sides = [parse_scalar(side, scope) for _, *both in spec.conditions for side in both]
    equal = roots(side for pair in plan.equations for side in pair)
    limited = (limit.symbol for limit in spec.limits)
    return frozenset((*limited, *equal, *(name for side in sides for name in symbols_in(side))))


def size_check(spec: CallSpec, plan: Plan) -> CheckSizes | None:
    """Return a function that raises InputError for values of a plan's symbols that the program does
    not accept; None when it accepts all that the plan does."""
    if not plan.symbols or not (spec.limits or spec.conditions):
        return None
    broken = broken_sizes(spec, [symbol.name for symbol in plan.symbols])

    def check(values: Mapping[str, int]) -> None:
        if found := broken(values):
            raise InputError(found)

    return check


def equal_integers(
    inputs: Sequence[Source], repeated: Iterable[tuple[int, Dim, Dim]]
) -> tuple[Condition, ...]:
    """Return conditions that integers equal those of the trace (`ImportedGraph.repeated`); those
    that are sizes of tensors are checked with these, and not all of their strides."""
    sizes = {n for n, source in enumerate(inputs) if source.axis >= 0 and source.part == "size"}
    return tuple(("==", str(a), spelled(b)) for n, a, b in repeated if n not in sizes)


def where_of(plan: Plan, symbol: Sym) -> str:
    """Describe the dim or stride that a symbol stands for."""
    tensors = [entry for entry in plan.inputs if isinstance(entry, TensorInput)]
    dims = [(n, dim, entry.name) for entry in tensors for n, dim in enumerate(entry.shape)]
    strides = [(n, dim, entry.name) for entry in tensors for n, dim in enumerate(entry.strides)]
    for what, found in (("dim", dims), ("stride", strides)):
        for axis, dim, name in found:
            if dim == of_atom(symbol):
                return f"{what} {axis} of argument {name!r}"
    for axis, dim, name in dims:
        if symbol.name in symbols(dim):
            return f"{symbol.name} in dim {axis} ({dim}) of argument {name!r}"
    integers = [entry.symbol for entry in plan.inputs if isinstance(entry, SymbolInput)]
    return f"integer argument {integers.index(symbol.name) + 1} of {len(integers)}"
