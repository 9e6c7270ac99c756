"""Which inputs of a kernel its outputs may be written over.

An output may take the memory of an input when whoever reads an element of the input also writes the
same element of the output, later. Then nobody reads an element that has been written over. It is
told from the indices alone: a load and a store are of the same element when they have the same
index, stride and lanes and stand in the same block.

Two passes must not write one element. That is so where the kernel does not read the output, every
loop around a store moves it, and no index is bounded by `min` or `max`, as that of a last vector
pushed back over the one before would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from kernelmill.core.dim import Dim, Op, symbols, terms_of
from kernelmill.kernel.ir import (
    TASK,
    For,
    Gather,
    IndexValue,
    Kernel,
    Let,
    Load,
    Repeat,
    Scatter,
    Stmt,
    Store,
    TileLoad,
    TileStore,
    Value,
)
from kernelmill.kernel.walk import blocks_of

_Place = tuple[int, Dim, Dim, int]
"""The block that an access stands in, by its number, then index, stride and lanes."""


def overwritable(kernel: Kernel) -> Mapping[str, frozenset[str]]:
    """For each output the inputs of its dtype whose memory it may have; outputs without any are
    left out. The memory has to begin at the same address."""
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
        if inputs:
            found[output.name] = inputs
    return found


class _Accesses:
    """All loads and stores of a kernel, in order. `unclear` are buffers with others."""

    def __init__(self, kernel: Kernel) -> None:
        self.unclear: set[str] = set()
        self._all: list[tuple[Union[Load, Store], _Place]] = []
        self._blocks = 0
        self._indices: dict[Value, Dim] = {}
        self._origins: dict[str, frozenset[str]] = {}
        self._block(kernel.body, 0, frozenset() if kernel.tasks == 1 else frozenset({TASK}))
        written = {access.buffer for access, _ in self._all if isinstance(access, Store)}
        read = {access.buffer for access, _ in self._all if isinstance(access, Load)}
        self.unclear |= written & read

    def written_behind(self, source: str, target: str) -> bool:
        """Whether each load of one is followed by a store to the other at the same place."""
        waiting: list[tuple[_Place, object]] = []
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

    def _block(self, body: Sequence[Stmt], number: int, loops: frozenset[str]) -> None:
        for statement in body:
            around = self._statement(statement, number, loops)
            for block in blocks_of(statement):
                self._blocks += 1
                self._block(block, self._blocks, around)

    def _statement(self, statement: Stmt, number: int, loops: frozenset[str]) -> frozenset[str]:
        """Note what it does itself; the loops around the blocks inside of it."""
        match statement:
            case Load():
                self._note(statement, statement.result.type.lanes, number)
            case Store():
                self._note(statement, statement.value.type.lanes, number)
                if not loops <= self._moved_by(statement.index) or _bounded(statement.index):
                    self.unclear.add(statement.buffer)
            case IndexValue():
                self._indices[statement.result] = statement.dim
            case Let():
                start = self._indices.get(statement.value, 0)
                self._origins[statement.symbol.name] = self._moved_by(start)
            case Gather() | Scatter() | TileLoad() | TileStore():
                self.unclear.add(statement.buffer)
            case For():
                self._origins[statement.symbol.name] = self._moved_by(statement.start)
                return loops if _runs_once(statement) else loops | {statement.symbol.name}
            case Repeat():
                # No index is known to differ from pass to pass: what is stored here is unclear.
                return loops | {f"repeat {self._blocks}"}
            case _:
                pass
        return loops

    def _moved_by(self, index: Dim) -> frozenset[str]:
        """The symbols in an index, and those in what they are bound to or start from."""
        names = symbols(index).keys()
        return frozenset(names).union(*(self._origins.get(name, ()) for name in names))

    def _note(self, access: Union[Load, Store], lanes: int, number: int) -> None:
        self._all.append((access, (number, access.index, access.stride, lanes)))


def _runs_once(loop: For) -> bool:
    passes = loop.stop - loop.start
    return isinstance(passes, int) and isinstance(loop.step, int) and passes <= loop.step


def _bounded(dim: Dim) -> bool:
    """Whether there is a `min` or `max` in an index."""
    atoms = (atom for monomial, _ in terms_of(dim) for atom in monomial)
    operations = [atom for atom in atoms if isinstance(atom, Op)]
    return any(o.kind in ("min", "max") or _bounded(o.a) or _bounded(o.b) for o in operations)
