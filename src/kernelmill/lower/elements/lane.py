"""Vectors of elements for templates: one symbol of the index stands for the lane. Elements that
lanes share, such as the mean of a group of channels, are loaded once."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Op, Sym, as_sym, of_atom, substitute, symbols
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value


@dataclass(frozen=True)
class Lane:
    """`symbol` (range 0..count-1) occurs in the index that is asked for and is each lane's number.

    Write an index as `base + lane.index`, with the base a multiple of `count` where that is so
    (`block * count + lane.index`): the known range of the symbol is what lets `//` and `%` of a
    reshape cancel, so that the access stays one vector load. `mask` is a bool vector of the lanes
    that exist, None for all of them.
    """

    symbol: Sym
    count: int
    mask: Value | None = None

    @property
    def index(self) -> Expr:
        """The lane's number as an index expression."""
        return of_atom(self.symbol)


def repeated_lanes(address: Dim, lane: Lane) -> tuple[Dim, Dim, int] | None:
    """Return the first address, step and number of elements if each run of 2, 4, ... lanes reads
    one element; None otherwise."""
    if isinstance(address, int):
        return None
    found = [
        (monomial, factor)
        for monomial, factor in address.terms
        if any(lane.symbol.name in symbols(of_atom(atom)) for atom in monomial)
    ]
    match found:
        case [((Op(kind="div", a=lanes, b=int(run)),), step)] if as_sym(lanes) == lane.symbol:
            if run & (run - 1) or lane.count % run or run == lane.count:
                return None
            return substitute(address, {lane.symbol.name: 0}), step, lane.count // run
        case _:
            return None


def repeat_lanes(b: KernelBuilder, register: Value, lanes: int) -> Value:
    """Return a vector in which each lane of a shorter one stands several times."""
    while register.type.lanes < lanes:
        width, dtype = register.type.lanes, register.type.dtype
        halves = [
            b.op("interleave", register, register, dtype=dtype, lanes=width, half=half)
            for half in (0, 1)
        ]
        register = b.op("concat2", *halves)
    return register
