"""Traversal of the statements of a kernel, nested ones included, and of their dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.core.dim import Dim, symbols
from kernelmill.kernel import ir


def blocks_of(statement: ir.Stmt) -> tuple[Sequence[ir.Stmt], ...]:
    """Return the blocks inside of a statement: a loop's body, both sides of a branch."""
    if isinstance(statement, (ir.For, ir.Repeat)):
        return (statement.body,)
    return (statement.then, statement.otherwise) if isinstance(statement, ir.If) else ()


def statements_of(body: Sequence[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Yield all statements of a block in text order, each before those nested in it."""
    for statement in body:
        yield statement
        for block in blocks_of(statement):
            yield from statements_of(block)


def dims_of(statement: ir.Stmt) -> tuple[Dim, ...]:
    """Return the dims that a statement is written with, without those of nested statements."""
    match statement:
        case ir.Instr():
            return ()
        case ir.Load() | ir.Store() | ir.TileLoad() | ir.TileStore():
            return statement.index, statement.stride
        case ir.IndexValue():
            return (statement.dim,)
        case ir.Gather() | ir.Scatter():
            return (statement.base,)
        case ir.Prefetch():
            return (statement.index,)
        case ir.Let():
            return (statement.symbol.hi or 0,)
        case ir.For():
            return statement.start, statement.stop, statement.step
        case ir.Repeat() | ir.If():
            return ()


def used_symbols(kernel: ir.Kernel) -> set[str]:
    """Return the names of all symbols in the kernel, its own loops' included."""
    found: set[str] = set()
    for dim in (kernel.tasks, kernel.scratch, *(buffer.elements for buffer in kernel.buffers)):
        found.update(symbols(dim))
    for statement in statements_of(kernel.body):
        for dim in dims_of(statement):
            if not isinstance(dim, int):
                found.update(symbols(dim))
    return found
