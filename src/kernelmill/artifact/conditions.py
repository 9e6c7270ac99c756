"""Conditions on the sizes of a call: ("==", "s0 % 8", "0")."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from kernelmill.core.dim import Dim, evaluate, of_atom, parse
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import Plan
from kernelmill.runtime.engine import CheckSizes

Condition = tuple[str, str, str]
"""Relation, left and right side as texts of dims."""

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


def condition_check(conditions: Sequence[Condition], plan: Plan) -> CheckSizes:
    """What raises InputError for values of a plan's symbols for which a condition does not hold."""
    parsed = Conditions(conditions, {symbol.name: of_atom(symbol) for symbol in plan.symbols})

    def check(values: Mapping[str, int]) -> None:
        if broken := parsed.broken(values):
            raise InputError(f"sizes do not fit: {broken}")

    return check
