"""Bytes read four at a time, neighbours along k: the words of a contraction of i8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from kernelmill.core.dim import Dim, ceildiv, linear_part, minimum, mod, symbols
from kernelmill.core.dtype import I32
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.contract.spec import WORD_OF_128, Dims, LoadElement
from kernelmill.lower.lane import Lane

BYTES = 4
"""Bytes in a word."""

LoadByte = Callable[[Dims, Dim, Dim, Union[Lane, None]], Value]
"""`load(batch, outer, k, lane)`: one byte, or the vector of bytes along the lane's symbol."""


def word_count(k: Dim) -> Dim:
    """How many words hold k bytes."""
    return ceildiv(k, BYTES)


def word_loader(load: LoadByte, k: Dim, shifted: bool) -> LoadElement:
    """Reads words of bytes of which there are `k`; beyond them are zeros.

    `shifted`: 128 is added to every byte, so that as unsigned they have the order of signed ones.
    """

    def word(builder: KernelBuilder, batch: Dims, outer: Dim, at: Dims, lane: Lane | None) -> Value:
        (number,) = at
        if lane is not None and lane.symbol.name not in symbols(number):
            value = _side_by_side(builder, load, batch, outer, number * BYTES, k, lane)
        else:
            value = _along(builder, load, batch, outer, number, k, lane)
        return builder.op("xor", value, WORD_OF_128) if shifted else value

    return word


def _along(
    builder: KernelBuilder,
    load: LoadByte,
    batch: Dims,
    outer: Dim,
    number: Dim,
    k: Dim,
    lane: Lane | None,
) -> Value:
    """A word, or with a lane along k one word after another: their bytes are one vector."""
    words, first = 1, number
    if lane is not None:
        linear = linear_part(number, lane.symbol.name)
        assert linear is not None and linear[0] == 1, "words are read one after another"
        words, first = lane.count, linear[1]
    count = words * BYTES
    mask = None
    if mod(k, count) != 0:
        mask = builder.op("lane_mask", builder.index(k - first * BYTES), lanes=count)
    bytes = Lane(builder.fresh_symbol("byte", 0, count - 1), count, mask)
    value = load(batch, outer, first * BYTES + bytes.index, bytes)
    return builder.op("bitcast", value, dtype=I32, lanes=words)


def _side_by_side(
    builder: KernelBuilder,
    load: LoadByte,
    batch: Dims,
    outer: Dim,
    first: Dim,
    k: Dim,
    lane: Lane,
) -> Value:
    """A vector of words that do not neighbour each other: four vectors of bytes, put together."""
    total: Value | None = None
    for byte in range(BYTES):
        at = first + byte
        exists = None
        if byte and mod(k, BYTES) != 0:
            exists = builder.op("lt", builder.index(at), builder.index(k))
            at = minimum(at, k - 1)
        value = builder.op("cast", load(batch, outer, at, lane), dtype=I32)
        if byte < BYTES - 1:
            value = builder.op("and", value, 0xFF)
        if byte:
            value = builder.op("shl", value, 8 * byte)
        if exists is not None:
            value = builder.op("select", exists, value, 0)
        total = value if total is None else builder.op("or", total, value)
    assert total is not None
    return total
