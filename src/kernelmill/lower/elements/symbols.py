"""Which of a program's symbols a kernel's text uses: those become its dims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernelmill.core.dim import Dim, symbols
from kernelmill.kernel.ir import (
    For,
    Gather,
    If,
    IndexValue,
    Kernel,
    Let,
    Load,
    Prefetch,
    Repeat,
    Scatter,
    Stmt,
    Store,
    TileLoad,
    TileStore,
)


def used_symbols(kernel: Kernel) -> set[str]:
    """Names of all symbols in the kernel, its own loops' included."""
    found: set[str] = set()
    for dim in _dims(kernel):
        found |= symbols(dim).keys()
    return found


def _dims(kernel: Kernel) -> Iterator[Dim]:
    yield kernel.tasks
    yield kernel.scratch
    yield from (buffer.elements for buffer in kernel.buffers)
    yield from _block(kernel.body)


def _block(statements: Iterable[Stmt]) -> Iterator[Dim]:
    for statement in statements:
        if isinstance(statement, IndexValue):
            yield statement.dim
        elif isinstance(statement, Load | Store | TileLoad | TileStore):
            yield statement.index
            yield statement.stride
        elif isinstance(statement, Prefetch):
            yield statement.index
        elif isinstance(statement, Gather | Scatter):
            yield statement.base
        elif isinstance(statement, Let):
            yield statement.symbol.hi or 0
        elif isinstance(statement, For):
            yield from (statement.start, statement.stop, statement.step)
            yield from _block(statement.body)
        elif isinstance(statement, Repeat):
            yield from _block(statement.body)
        elif isinstance(statement, If):
            yield from _block(statement.then)
            yield from _block(statement.otherwise)
