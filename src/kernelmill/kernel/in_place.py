"""Inputs of a kernel that its outputs may overwrite.

An output may take the memory of an input when whoever reads an element of the input also writes the
same element of the output, later. Then nobody reads an element that has been written over. It is
told from the indices alone: a load and a store are of the same element when they have the same
index, stride and lanes and stand in the same block. No two stores, and no two passes of one, may
meet in the output, or one could read what another has written (places.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from kernelmill.core.dim import (
    Dim,
    Op,
    Sym,
    bounds,
    ceildiv,
    linear_part,
    of_atom,
    provably_nonnegative,
    substitute,
    symbols,
    terms_of,
)
from kernelmill.kernel import ir
from kernelmill.kernel.places import Digit, Place, write_once
from kernelmill.kernel.walk import blocks_of

_Access = tuple[int, Dim, Dim, int]
"""The block that it stands in, by its number, then index, stride and lanes."""

_Loop = tuple[Sym, Union[Dim, None]]
"""What counts its passes, and how many there are at most, if that is known."""


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
        """What symbols stand for, in terms of the kernel's dims and of the passes of loops."""
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

    def _place(self, store: ir.Store, loops: Sequence[_Loop]) -> Place | None:
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
        return Place(base, tuple(digits), self._end(store, index, stride))

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
