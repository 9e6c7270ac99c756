"""Packed dot operands: several small numbers, neighbours along k, in an i32 or i64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, linear_part, minimum, mod, symbols
from kernelmill.core.dtype import BF16, I8, I16, I32, U8, DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import LoadElement

ZERO_POINTS = 0x80808080 - (1 << 32)
"""Four bytes of 128, the zero point of A, as an i32."""

LoadNumber = Callable[[Dims, Dim, Dims, Union[Lane, None]], Value]
"""`load(batch, outer, k, lane)`: one number, or the vector of numbers along the lane's symbol."""


def unit_of_product(dtype: DType, machine: Machine, m: Dim, n: Dim, k: Dim) -> DotUnit:
    """Return the unit that multiplies several numbers of this type at a time in a product of
    matrices, m x k and k x n; its group is one where they are multiplied one at a time."""
    if dtype not in (I8, U8, BF16):
        return MULTIPLY_ADD
    return machine.product_unit(dtype, dtype, size_hint(m), size_hint(n), size_hint(k))


@dataclass(frozen=True)
class DotOperand:
    """An operand of numbers of type `dtype` in words. The last axis of k has `k` of them, and zeros
    fill up its last word.

    `shifted`: 128 is added to every byte, so that as unsigned they have the order of signed ones.
    """

    dtype: DType
    k: Dim
    load: LoadNumber
    word: DType = I32
    shifted: bool = False

    @property
    def size(self) -> int:
        """Numbers in a word."""
        return self.word.bits // self.dtype.bits

    @property
    def count(self) -> Dim:
        """Number of words."""
        return ceildiv(self.k, self.size)

    @property
    def loader(self) -> LoadElement:
        """Callback that reads words."""

        def word(
            builder: KernelBuilder, batch: Dims, outer: Dim, at: Dims, lane: Lane | None
        ) -> Value:
            if lane is not None and lane.symbol.name not in symbols(at[-1]):
                value = self._side_by_side(builder, batch, outer, at, lane)
            else:
                value = self._along(builder, batch, outer, at, lane)
            return builder.op("xor", value, ZERO_POINTS) if self.shifted else value

        return word

    def _along(
        self, builder: KernelBuilder, batch: Dims, outer: Dim, at: Dims, lane: Lane | None
    ) -> Value:
        """Return a word, or with a lane along k several in order: their numbers are one vector."""
        *axes, number = at
        words, first = 1, number
        if lane is not None:
            linear = linear_part(number, lane.symbol.name)
            assert linear is not None and linear[0] == 1, "words are read one after another"
            words, first = lane.count, linear[1]
        count = words * self.size
        mask = None
        if mod(self.k, count) != 0:
            left = builder.index(self.k - first * self.size)
            mask = builder.op("lane_mask", left, lanes=count)
        part = Lane(builder.fresh_symbol("part", 0, count - 1), count, mask)
        value = self.load(batch, outer, (*axes, first * self.size + part.index), part)
        return builder.op("bitcast", value, dtype=self.word, lanes=words)

    def _side_by_side(
        self, builder: KernelBuilder, batch: Dims, outer: Dim, number: Dims, lane: Lane
    ) -> Value:
        """A vector of words that do not neighbour each other: vectors of numbers, put together."""
        total: Value | None = None
        bits, (*axes, word) = self.dtype.bits, number
        for part in range(self.size):
            at = word * self.size + part
            exists = None
            if part and mod(self.k, self.size) != 0:
                exists = builder.op("lt", builder.index(at), builder.index(self.k))
                at = minimum(at, self.k - 1)
            value = self.load(batch, outer, (*axes, at), lane)
            if self.dtype.is_float:
                value = builder.op("bitcast", value, dtype=I16)
            value = builder.op("cast", value, dtype=self.word)
            if part < self.size - 1:
                value = builder.op("and", value, (1 << bits) - 1)
            if part:
                value = builder.op("shl", value, bits * part)
            if exists is not None:
                value = builder.op("select", exists, value, 0)
            total = value if total is None else builder.op("or", total, value)
        assert total is not None
        return total
