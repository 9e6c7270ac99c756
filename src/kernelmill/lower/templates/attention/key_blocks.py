"""The loop over the blocks of keys that the rows of a task attend to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelmill.core.dim import Dim, ceildiv, floordiv, maximum, minimum
from kernelmill.core.dtype import I64
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.templates.attention.context import AttentionContext
from kernelmill.lower.templates.attention.spec import KeyBlocks

EmitBlock = Callable[[AttentionContext, Dims, Dim, Dim], None]
"""`emit(context, batch, start, end)`: keys start..end-1, no more than the schedule's."""


def each_block(
    context: AttentionContext, batch: Dims, first: Dim, stop: Dim, emit: EmitBlock
) -> None:
    """Emit each block of keys for rows first..stop-1."""
    spec, schedule = context.spec, context.schedule
    if spec.blocks is not None:
        _listed(context, spec.blocks, batch, first, emit)
        return
    keys = minimum(spec.keys, stop) if spec.causal else spec.keys
    if schedule.single_block:
        emit(context, batch, 0, keys)
    else:
        _part(context, batch, 0, keys, emit)


def _part(context: AttentionContext, batch: Dims, start: Dim, end: Dim, emit: EmitBlock) -> None:
    size = context.schedule.keys
    with context.builder.loop(start, end, size, prefix="n") as loop:
        emit(context, batch, loop.index, minimum(loop.index + size, end))


def _listed(
    context: AttentionContext, blocks: KeyBlocks, batch: Dims, first: Dim, emit: EmitBlock
) -> None:
    """Loop over the listed blocks of keys for the block of rows that has the first row."""
    b, keys = context.builder, context.spec.keys
    row = minimum(floordiv(first, blocks.rows), blocks.down - 1)
    counts = [_count(b, blocks, which, batch, row) for which in range(len(blocks.most))]
    with b.loop(0, sum(counts[1:], counts[0]), prefix="j") as loop:
        block = _number(b, blocks, counts[0], batch, row, loop.index, keys)
        masking = b.op("lt", b.index(loop.index), b.index(counts[0]))
        known = replace(context, masking=masking if len(counts) > 1 else None)
        start = block * blocks.keys
        end = minimum(start + blocks.keys, keys)
        if blocks.keys <= context.schedule.keys:
            emit(known, batch, start, end)
        else:
            _part(known, batch, start, end, emit)


def _count(b: KernelBuilder, blocks: KeyBlocks, which: int, batch: Dims, row: Dim) -> Dim:
    count = b.op("max", blocks.count(which, batch, row), 0)
    most = blocks.most[which]
    return b.let(b.op("min", count, b.index(most)), 0, most)


def _number(
    b: KernelBuilder, blocks: KeyBlocks, masked: Dim, batch: Dims, row: Dim, place: Dim, keys: Dim
) -> Dim:
    """The block of keys at a place of the lists one behind the other. One that there is not is
    reported, and the first is taken."""
    number = blocks.number(0, batch, row, minimum(place, blocks.most[0] - 1))
    if len(blocks.most) > 1:
        behind = minimum(maximum(place - masked, 0), blocks.most[1] - 1)
        second = blocks.number(1, batch, row, behind)
        in_first = b.op("lt", b.index(place), b.index(masked))
        number = b.op("select", in_first, number, second, dtype=I64)
    across = ceildiv(keys, blocks.keys)
    valid = b.op("and", b.op("ge", number, 0), b.op("lt", number, b.index(across)))
    b.op("check", valid, code=1)
    return b.let(b.op("select", valid, number, 0), 0, across - 1)
