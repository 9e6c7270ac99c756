"""The sizes of a call, held against what a trace found of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from kernelmill.artifact.manifest import CallSpec, Condition
from kernelmill.core.dim import Dim, evaluate, of_atom, parse, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.expr import Sym
from kernelmill.plan.ir import Plan, SymbolInput, TensorInput
from kernelmill.runtime.engine import CheckSizes

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class Conditions:
    """Conditions over the symbols of `scope`, by name."""

    def __init__(self, conditions: Sequence[Condition], scope: Mapping[str, Dim]) -> None:
        self._parsed = [
            (r, parse(left, scope), parse(right, scope)) for r, left, right in conditions
        ]

    def broken(self, values: Mapping[str, int]) -> str:
        """The first that does not hold, in words; "" when all do."""
        for relation, left, right in self._parsed:
            if not _RELATIONS[relation](evaluate(left, values), evaluate(right, values)):
                return f"{left} {relation} {right} does not hold"
        return ""


def size_check(spec: CallSpec, plan: Plan) -> CheckSizes | None:
    """What raises InputError for values of a plan's symbols that the program is not for; None when
    it is for all that the plan takes."""
    if not plan.symbols or not (spec.limits or spec.conditions):
        return None
    conditions = Conditions(spec.conditions, {s.name: of_atom(s) for s in plan.symbols})

    def check(values: Mapping[str, int]) -> None:
        for limit in spec.limits:
            value = values.get(limit.symbol, limit.low)
            if value < limit.low or (limit.high is not None and value > limit.high):
                raise InputError(f"{limit.where} is {value}, and has to be {limit.text()}")
        if broken := conditions.broken(values):
            raise InputError(f"sizes do not fit: {broken}")

    return check


def where_of(plan: Plan, symbol: Sym) -> str:
    """What has the size that a symbol stands for, in words."""
    tensors = [entry for entry in plan.inputs if isinstance(entry, TensorInput)]
    dims = [(n, dim, entry.name) for entry in tensors for n, dim in enumerate(entry.shape)]
    for axis, dim, name in dims:
        if dim == of_atom(symbol):
            return f"dim {axis} of argument {name!r}"
    for axis, dim, name in dims:
        if symbol.name in symbols(dim):
            return f"{symbol.name} in dim {axis} ({dim}) of argument {name!r}"
    integers = [entry.symbol for entry in plan.inputs if isinstance(entry, SymbolInput)]
    return f"integer argument number {integers.index(symbol.name)}"
