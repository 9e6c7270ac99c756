"""How a template asks for a vector of elements: one symbol of the index stands for the lane."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Expr, Sym, of_atom
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
