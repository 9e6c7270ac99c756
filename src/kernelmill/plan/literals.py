"""Looks into the arguments of ATen steps: which buffers and which dims they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernelmill.core.dim import Dim, Sym, of_atom, parse
from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import AtenCall, Literal, Plan

DIMS = frozenset(("dim", *NUMBERS))
"""The tags of dims among ATen's arguments."""

BODIES = frozenset(("body", "single"))
"""The tags of bodies."""


def buffers_in(literal: Literal) -> Iterator[int]:
    """Yield the numbers of the buffers, ("tensor", n), anywhere inside."""
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] == "tensor" and isinstance(literal[1], int):
            yield literal[1]
        else:
            for part in literal:
                yield from buffers_in(part)


def bodies_of(plan: Plan) -> list[str]:
    """Return the names of the bodies that the plan's higher-order operators take, each once."""
    calls = [step for step in plan.steps if isinstance(step, AtenCall)]
    return list(dict.fromkeys(name for call in calls for name in bodies_in(call)))


def bodies_in(call: AtenCall) -> Iterator[str]:
    """Yield the names of the bodies that one operator takes."""
    return _bodies_in((call.args, call.kwargs))


def _bodies_in(literal: Literal) -> Iterator[str]:
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] in BODIES and isinstance(literal[1], str):
            yield literal[1]
        else:
            for part in literal:
                yield from _bodies_in(part)


def dims_in(literal: Literal, symbols: Iterable[Sym]) -> Iterator[Dim]:
    """Yield the dims, ("dim", text) and the like, inside. ValueError for an unknown symbol."""
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] in DIMS and isinstance(literal[1], str):
            yield dim_of(literal[1], symbols)
        else:
            for part in literal:
                yield from dims_in(part, symbols)


def dim_of(text: str, symbols: Iterable[Sym]) -> Dim:
    """Return the dim that a text stands for. ValueError when it names an unknown symbol."""
    return parse(text, {symbol.name: of_atom(symbol) for symbol in symbols})
