"""torch's size expressions as dims, checked by evaluating both."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy import functions as sf
from torch.utils._sympy.value_ranges import ValueRanges

from kernelmill.core.dim import Sym, evaluate, symbols
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.symbols import SymbolTable

S, T = sympy.symbols("s t", integer=True)


class Env:
    """As much of a ShapeEnv as the table asks for."""

    var_to_range = {S: ValueRanges(2, 100), T: ValueRanges(0, sympy.oo)}  # noqa: RUF012
    guards = ()


CONVERTED = {
    "sum": 3 * S + T - 2,
    "power": S**2,
    "floor": sf.FloorDiv(S + 1, 3),
    "clean": sf.CleanDiv(4 * S, 2),
    "mod": sf.Mod(S, 5),
    "python mod": sf.PythonMod(S - 7, 5),
    "modular": sf.ModularIndexing(S, 3, 4),
    "min max": sf.Max(sf.Min(S, T), 3),
    "ceil": sf.CeilToInt(sf.IntTrueDiv(S, 3)),
    "trunc": sf.TruncToInt(sf.IntTrueDiv(S, 3)),
    "floor of quotient": sf.FloorToInt(sf.IntTrueDiv(S, 4)),
    "doubled": sf.TruncToInt(2.0 * sf.ToFloat(S)),
    "half": S / 2,
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_size_keeps_its_value(name: str) -> None:
    expr = CONVERTED[name]
    dim = SymbolTable().of_expr(expr, Env)
    for s in (2, 8, 30):
        for t in (0, 1, 17):
            expected = expr.subs({S: s, T: t})
            if name == "half":
                assert expected.is_Integer
            assert evaluate(dim, {"s": s, "t": t}) == int(expected)


def test_ranges_come_along() -> None:
    found = symbols(SymbolTable().of_expr(S + T, Env))
    assert _range(found["s"]) == (2, 100)
    assert _range(found["t"]) == (0, None)


def _range(symbol: Sym) -> tuple[int, object]:
    return symbol.lo, symbol.hi


@pytest.mark.parametrize(
    "expr", [sf.TruncToInt(1.5 * sf.ToFloat(S)), sf.FloatPow(S, 0.5), sf.PowByNatural(2, S)]
)
def test_what_has_no_form_is_refused(expr: sympy.Expr) -> None:
    with pytest.raises(UnsupportedError):
        SymbolTable().of_expr(expr, Env)


def test_division_by_what_may_be_zero_never_traps() -> None:
    dim = SymbolTable().of_expr(sf.FloorDiv(S, T), Env)
    assert evaluate(dim, {"s": 17, "t": 3}) == 5
    assert evaluate(dim, {"s": 17, "t": 0}) == 17


def test_division_by_what_may_be_negative_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="may be negative"):
        SymbolTable().of_expr(sf.FloorDiv(S, T - 5), Env)


def test_plain_integers_need_no_symbols() -> None:
    assert SymbolTable().dims([1, 2, 3]) == (1, 2, 3)
