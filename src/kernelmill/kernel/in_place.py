"""Inputs of a kernel that its outputs may overwrite.

An output may take the memory of an input if each code that reads an element of the input later
writes the same element of the output. Then no overwritten element is read. The test only uses
indices: a load and a store access the same element if they have the same index, stride and lanes
and are in the same block. No two stores, and no two passes of one, may write the same element, or
one could read what another has written.

Addresses of stores as numbers with digits, and the proof that no two are equal.

An address is a base and a digit for each loop around the store and for its lanes: a factor times a
counter. If each factor is at least as large as the sum of all smaller digits, no two numbers are
equal. What is not proven counts as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Union

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Dim,
    Op,
    Sym,
    bounds,
    ceildiv,
    evaluate,
    linear_part,
    mod,
    of_atom,
    provably_nonnegative,
    substitute,
    symbols,
    terms_of,
)
from kernelmill.kernel import ir
from kernelmill.kernel.ir import blocks_of

_SAMPLE = 1 << 10
"""The assumed value of a symbol when digits are sorted."""


@dataclass(frozen=True)
class Digit:
    """`worth` times `symbol`, which counts from 0 to below `count` (None: unbounded)."""

    symbol: Sym
    worth: Dim
    count: Dim | None


@dataclass(frozen=True)
class StoredPlaces:
    """The elements that one store writes: `base` plus digits; where a mask gives a bound, all are
    below `end`, an expression over their symbols."""

    base: Dim
    digits: tuple[Digit, ...]
    end: Dim | None = None

    def widths(self, inner: Iterable[Digit]) -> list[Dim]:
        """Return bounds of how many elements these digits span; an empty list if none is known."""
        found: list[Dim] = [1]
        below: list[Digit] = []
        for digit in _in_order(inner):
            found = _spans(found, [digit])
            below.append(digit)
            if self.end is not None:
                above = (other for other in self.digits if other not in below)
                found.append(self.end - self.base - _value(above))
        names = {digit.symbol.name for digit in self.digits}
        return [width for width in found if names.isdisjoint(symbols(width))]


def write_once(places: Sequence[StoredPlaces]) -> bool:
    """Return whether stores at these places write no element twice."""
    return all(map(_is_injective, places)) and all(
        _are_apart(a, b) for a, b in combinations(places, 2)
    )


def _is_injective(place: StoredPlaces) -> bool:
    digits = _in_order(place.digits)
    return all(_reaches(digit.worth, place.widths(digits[:n])) for n, digit in enumerate(digits))


def _are_apart(a: StoredPlaces, b: StoredPlaces) -> bool:
    """Return whether two places share no element: the large digits of both tell them apart or,
    where these are equal, the rest of one is all below the rest of the other."""
    same = _in_order(digit for digit in a.digits if _counterpart(digit, b.digits) is not None)
    for first in range(len(same) + 1):
        outer = same[first:]
        others = [_counterpart(digit, b.digits) for digit in outer]
        near = a.widths([digit for digit in a.digits if digit not in outer])
        far = b.widths([digit for digit in b.digits if digit not in others])
        distance = b.base - a.base
        for way, before, behind in ((distance, near, far), (-distance, far, near)):
            if _reaches(way, before) and _tell_apart(outer, [way + width for width in behind]):
                return True
    return False


def _counterpart(digit: Digit, others: Iterable[Digit]) -> Digit | None:
    """Return the digit of the same loop, or of another one that counts as far in equal steps."""
    alike = [o for o in others if (o.worth, o.count) == (digit.worth, digit.count)]
    own = (other for other in alike if other.symbol == digit.symbol)
    return next(own, alike[0] if len(alike) == 1 else None)


def _tell_apart(digits: Sequence[Digit], widths: list[Dim]) -> bool:
    """Return whether the factor of each digit is at least the span of those before it, above one of
    `widths`."""
    return all(_reaches(digit.worth, _spans(widths, digits[:n])) for n, digit in enumerate(digits))


def _value(digits: Iterable[Digit]) -> Dim:
    total: Dim = 0
    for digit in digits:
        total = total + digit.worth * of_atom(digit.symbol)
    return total


def _spans(widths: Iterable[Dim], digits: Iterable[Digit]) -> list[Dim]:
    """Return bounds of the span of numbers with these digits above one of the `widths`."""
    further: Dim = 0
    for digit in digits:
        if digit.count is None:
            return []
        further = further + digit.worth * (digit.count - 1)
    return [width + further for width in widths]


def _reaches(distance: Dim, widths: Iterable[Dim]) -> bool:
    rests = (distance - width for width in widths)
    return any(provably_nonnegative(rest) or provably_nonnegative(_divided(rest)) for rest in rests)


def _divided(dim: Dim) -> Dim:
    """Replace `x - x % k` by `x // k * k` in `dim`, since the ranges of remainders are known."""
    for monomial, factor in terms_of(dim):
        match monomial:
            case (Op(kind="div", a=a, b=int(b)) as quotient,) if factor % b == 0:
                dim = dim + factor // b * (a - mod(a, b)) - factor * of_atom(quotient)
            case _:
                pass
    return dim


def _in_order(digits: Iterable[Digit]) -> list[Digit]:
    def size(digit: Digit) -> int:
        return evaluate(digit.worth, dict.fromkeys(symbols(digit.worth), _SAMPLE))

    return sorted(digits, key=size)


_Access = tuple[int, Dim, Dim, int]
"""The block that it stands in, by its number, then index, stride and lanes."""

_Loop = tuple[Sym, Union[Dim, None]]
"""The counter of a loop's passes, and the limit of passes, if it is known."""


def overwritable(kernel: ir.Kernel) -> Mapping[str, frozenset[str]]:
    """Map each output to the inputs of its dtype whose memory it may have, if any. The memory has
    to begin at the same address."""
    accesses = _Accesses(kernel)
    found: dict[str, frozenset[str]] = {}
    for output in kernel.buffers:
        if output.access != "out" or output.name in accesses.unclear:
            continue
        inputs = frozenset(
            buffer.name
            for buffer in kernel.buffers
            if buffer.access == "in"
            and buffer.dtype == output.dtype
            and buffer.name not in accesses.unclear
            and accesses.written_behind(buffer.name, output.name)
        )
        if inputs and accesses.written_once(output.name):
            found[output.name] = inputs
    return found


class _Accesses:
    """All loads and stores of a kernel, in order. `unclear` are buffers with others."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.unclear: set[str] = set()
        self._all: list[tuple[Union[ir.Load, ir.Store], _Access]] = []
        self._stores: dict[str, list[tuple[ir.Store, Sequence[_Loop]]]] = {}
        self._blocks = 0
        self._values: dict[ir.Value, Union[ir.IndexValue, ir.Instr]] = {}
        self._dims: dict[str, Dim] = {}
        """Values of symbols, as expressions of the kernel's dims and of loops' passes."""
        self._varying: set[str] = set()
        tasks = (Sym(ir.TASK, 0, kernel.tasks - 1), kernel.tasks)
        if kernel.tasks == 1:
            self._dims[ir.TASK] = 0
        self._block(kernel.body, 0, () if kernel.tasks == 1 else (tasks,))
        read = {access.buffer for access, _ in self._all if isinstance(access, ir.Load)}
        self.unclear |= self._stores.keys() & read

    def written_behind(self, source: str, target: str) -> bool:
        """Return whether each load of `source` precedes a store to `target` of its elements."""
        waiting: list[tuple[_Access, object]] = []
        for access, place in self._all:
            if access.buffer == source:
                waiting.append((place, access.mask))
            elif access.buffer == target:
                waiting = [
                    (read, mask)
                    for read, mask in waiting
                    if read != place or (access.mask is not None and access.mask is not mask)
                ]
        return not waiting and any(access.buffer == source for access, _ in self._all)

    def written_once(self, target: str) -> bool:
        """Return whether no element is written twice."""
        places = [self._place(store, loops) for store, loops in self._stores.get(target, ())]
        known = [place for place in places if place is not None]
        return len(known) == len(places) and write_once(known)

    # ---- statements -------------------------------------------------------------------------

    def _block(self, body: Sequence[ir.Stmt], number: int, loops: Sequence[_Loop]) -> None:
        for statement in body:
            around = self._statement(statement, number, loops)
            for block in blocks_of(statement):
                self._blocks += 1
                self._block(block, self._blocks, around)

    def _statement(
        self, statement: ir.Stmt, number: int, loops: Sequence[_Loop]
    ) -> Sequence[_Loop]:
        """Note the accesses of a statement, and the loops around the blocks inside of it."""
        match statement:
            case ir.Load(result, _, index, _, stride):
                self._all.append((statement, (number, index, stride, result.type.lanes)))
            case ir.Store(buffer, index, value, _, stride):
                self._all.append((statement, (number, index, stride, value.type.lanes)))
                self._stores.setdefault(buffer, []).append((statement, loops))
            case ir.IndexValue() | ir.Instr():
                self._values[statement.result] = statement
            case ir.Let(symbol, value):
                start = self._values.get(value)
                if isinstance(start, ir.IndexValue):
                    self._dims[symbol.name] = self._resolved(start.dim)
                elif loops:
                    self._varying.add(symbol.name)
            case ir.Gather() | ir.Scatter() | ir.TileLoad() | ir.TileStore():
                self.unclear.add(statement.buffer)
            case ir.For():
                return self._loop(statement, loops)
            case ir.Repeat():
                return (*loops, (Sym(f"repeat.{self._blocks}"), None))
            case _:
                pass
        return loops

    def _loop(self, loop: ir.For, loops: Sequence[_Loop]) -> Sequence[_Loop]:
        start, step = self._resolved(loop.start), self._resolved(loop.step)
        stop = self._resolved(loop.stop)
        passes = [ceildiv(each - start, step) for each in _least(stop)]
        inner = {symbol.name for symbol, _ in loops} | self._varying
        most = next((count for count in passes if inner.isdisjoint(symbols(count))), None)
        if most is None:
            most = min((high for _, high in map(bounds, passes) if high is not None), default=None)
        if isinstance(most, int) and most <= 1:
            self._dims[loop.symbol.name] = start
            return loops
        counter = Sym(f"pass.{self._blocks}", 0, None if most is None else most - 1)
        self._dims[loop.symbol.name] = start + step * of_atom(counter)
        return (*loops, (counter, most))

    # ---- places -----------------------------------------------------------------------------

    def _resolved(self, dim: Dim) -> Dim:
        return substitute(dim, {n: self._dims[n] for n in symbols(dim) if n in self._dims})

    def _place(self, store: ir.Store, loops: Sequence[_Loop]) -> StoredPlaces | None:
        """Return the elements that a store writes; None where these are not known."""
        index, stride = self._resolved(store.index), self._resolved(store.stride)
        lanes = store.value.type.lanes
        digits: list[Digit] = []
        base, counted = index, [*loops]
        if lanes > 1:
            lane = Sym("lane.0", 0, lanes - 1)
            base, counted = base + stride * of_atom(lane), [*loops, (lane, lanes)]
        names = {symbol.name for symbol, _ in counted} | self._varying
        for symbol, count in counted:
            linear = linear_part(base, symbol.name)
            if linear is None or not names.isdisjoint(symbols(linear[0])):
                return None
            if not provably_nonnegative(linear[0]):
                return None
            digits.append(Digit(symbol, linear[0], count))
            base = linear[1]
        if not names.isdisjoint(symbols(base)):
            return None
        return StoredPlaces(base, tuple(digits), self._end(store, index, stride))

    def _end(self, store: ir.Store, index: Dim, stride: Dim) -> Dim | None:
        """Return the bound of elements under a mask that leaves out the last lanes, else None."""
        mask = None if store.mask is None else self._values.get(store.mask)
        if not isinstance(mask, ir.Instr) or mask.op != "lane_mask":
            return None
        count = mask.args[0]
        value = self._values.get(count) if isinstance(count, ir.Value) else None
        if not isinstance(value, ir.IndexValue):
            return None
        return index + stride * (self._resolved(value.dim) - 1) + 1


def _least(dim: Dim) -> tuple[Dim, ...]:
    """Return dims none of which it exceeds."""
    match terms_of(dim):
        case (((Op() as least,), 1),) if least.kind == "min":
            return (least.a, least.b)
        case _:
            return (dim,)
