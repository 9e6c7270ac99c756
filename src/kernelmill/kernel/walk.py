"""Goes through the statements of a kernel: which stand inside of which, and what dims they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.core.dim import Dim, symbols
from kernelmill.kernel.ir import (
    For,
    Gather,
    If,
    IndexValue,
    Instr,
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


def blocks_of(statement: Stmt) -> tuple[Sequence[Stmt], ...]:
    """The blocks inside of a statement: a loop's body, both sides of a branch."""
    if isinstance(statement, (For, Repeat)):
        return (statement.body,)
    return (statement.then, statement.otherwise) if isinstance(statement, If) else ()


def statements_of(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """All statements of a block in the order of the text, those inside of others behind them."""
    for statement in body:
        yield statement
        for block in blocks_of(statement):
            yield from statements_of(block)


def dims_of(statement: Stmt) -> tuple[Dim, ...]:
    """The dims that a statement is written with, without those of statements inside of it."""
    match statement:
        case Instr():
            return ()
        case Load() | Store() | TileLoad() | TileStore():
            return statement.index, statement.stride
        case IndexValue():
            return (statement.dim,)
        case Gather() | Scatter():
            return (statement.base,)
        case Prefetch():
            return (statement.index,)
        case Let():
            return (statement.symbol.hi or 0,)
        case For():
            return statement.start, statement.stop, statement.step
        case Repeat() | If():
            return ()


def used_symbols(kernel: Kernel) -> set[str]:
    """Names of all symbols in the kernel, its own loops' included."""
    found: set[str] = set()
    for dim in (kernel.tasks, kernel.scratch, *(buffer.elements for buffer in kernel.buffers)):
        found.update(symbols(dim))
    for statement in statements_of(kernel.body):
        for dim in dims_of(statement):
            if not isinstance(dim, int):
                found.update(symbols(dim))
    return found
