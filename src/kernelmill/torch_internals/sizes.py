"""Torch's functions of symbolic sizes: classes of sympy expressions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import sympy

from kernelmill.torch_internals.registry import internal

_FUNCTIONS = (
    "CeilDiv CeilToInt FloatPow FloatTrueDiv FloorDiv FloorToInt Identity IntTrueDiv Max Min Mod "
    "ModularIndexing PowByNatural PythonMod ToFloat TruncToFloat TruncToInt"
).split()


@internal(
    "sizes.functions",
    reason="sizes that vary: what torch computes from them",
    fallback="graphs with sizes that vary run in torch",
)
def size_functions() -> SimpleNamespace | None:
    """Return the functions by torch's names, `int_oo`, and `is_unbacked` of a symbol."""
    from torch.utils._sympy import functions
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.symbol import SymT, make_symbol, symbol_is_type

    def is_unbacked(symbol: Any) -> bool:
        return symbol_is_type(symbol, SymT.UNBACKED_INT)

    kinds = {name: getattr(functions, name) for name in _FUNCTIONS}
    n = make_symbol(SymT.UNBACKED_INT, 0, integer=True, nonnegative=True)
    m = make_symbol(SymT.SIZE, 0, integer=True, positive=True)
    right = (
        all(isinstance(kind, type) for kind in kinds.values())
        and is_unbacked(n)
        and not is_unbacked(m)
        and isinstance(kinds["FloorDiv"](n, m), kinds["FloorDiv"])
        and kinds["FloorDiv"](sympy.Integer(7), sympy.Integer(2)) == 3
        and kinds["PythonMod"](sympy.Integer(-7), sympy.Integer(2)) == 1
        and int_oo > 2**63
    )
    return SimpleNamespace(**kinds, int_oo=int_oo, is_unbacked=is_unbacked) if right else None


class _NoFunction:
    """A stand-in for a function: no expression is an instance, and none can be made."""

    def __init__(self, *args: object) -> None:
        refuse()


def refuse() -> NoReturn:
    """Raise UnsupportedError for sizes that vary, where torch's functions of them are unknown."""
    size_functions.require()
    raise AssertionError("only asked where they are not known")


def functions() -> Any:
    """Return the functions; where they are unknown, classes without instances."""
    found = size_functions.get()
    if found is not None:
        return found
    return SimpleNamespace(
        **dict.fromkeys(_FUNCTIONS, _NoFunction), int_oo=sympy.oo, is_unbacked=lambda _: False
    )
