"""Products of float32 as sums of products of bf16, exact enough and for ordinary numbers only.

A float32 x is hi + mid + lo: hi is x rounded to bf16 (8 bits, to nearest even), mid the rest
rounded, lo what is left. Each rest is exact in f32, and lo fits bf16, as long as nothing is
denormal: |mid| <= 2^-8 |x|, |lo| <= 2^-17 |x|. A product of two is the sum of nine products of
pieces, of which `Pieces.pairs` keeps some, the smallest first:

    products  pieces  pairs kept                               what is left out, of |a b|
    6         3       lo hi, hi lo, mid mid, mid hi, hi mid, hi hi    2^-24
    3         2       mid hi, hi mid, hi hi                           2^-15
    1         1       hi hi                                           2^-7

Products of two bf16 are exact in f32. A tile's instruction adds 16 of them to each of two sums that
begin with zero, adds these and then the sum so far (EVEN_AND_ODD of dot_units.py). Blocks of
256 = `DEPTH` along k are summed by themselves, pair after pair, and then added to each other. A sum
of k products by six has an error of at most

    (ceil(min(k, DEPTH) / 32) + ceil(k / DEPTH) + 20) * 2^-24 * sum |a b|

and one by FMA of k * 2^-24 * sum |a b|: from k = 32 on six are the more exact. By
fewer, what is left out comes to that.

Of numbers that are not ordinary pieces are not used at all, but FMA. Tile units take denormals for
zeros and make zeros of them, which is an error of up to 2^-126 a step; infinity less itself is
NaN; and a sum may overflow in one order only. Rows of A and columns of B are ordinary where

    k * max |a| * max |b| <= 2^126      nothing overflows, and nothing is infinity or NaN
    min |a|, min |b| >= least           of those that are not 0: pieces are not denormal,
    min |a| * min |b| >= least_product  and what steps lose is less than what is left out

Source of the splitting: G. Henry, P. T. P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial
Intelligence Datatype For Higher-Precision Computations", 2019.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, F32
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value

DEPTH = 256
"""Most k that are summed before they are added to the sums of others."""

_MOST = 2.0**126


@dataclass(frozen=True)
class Pieces:
    """A number of pieces, and the products of them that are summed. `pairs` are numbers of pieces
    of A and of B, 0 the highest, in the order in which their products are summed. With fewer than
    `least_depth` of them sums are no better than those of FMA."""

    pieces: int
    pairs: tuple[tuple[int, int], ...]
    least: float
    least_product: float
    least_depth: int = 1


_THREE = ((1, 0), (0, 1), (0, 0))

PIECES = {
    6: Pieces(3, ((2, 0), (0, 2), (1, 1), *_THREE), 2.0**-103, 2.0**-94, 32),
    3: Pieces(2, _THREE, 2.0**-109, 2.0**-104),
    1: Pieces(1, ((0, 0),), 2.0**-126, 2.0**-114),
}
"""By how many products they keep."""


def piece(builder: KernelBuilder, value: Value, number: int) -> Value:
    """Return a piece of f32 numbers, as bf16."""
    for _ in range(number):
        higher = builder.op("cast", builder.op("cast", value, dtype=BF16), dtype=F32)
        value = builder.op("sub", value, higher)
    return builder.op("cast", value, dtype=BF16)


@dataclass(frozen=True)
class Magnitudes:
    """The least that is not 0 and the largest, of numbers without their signs: f32, vectors or
    scalars. Of zeros alone the least is infinity; the largest is NaN where a number is."""

    least: Value
    most: Value

    @staticmethod
    def of(builder: KernelBuilder, values: Value) -> Magnitudes:
        """Return the magnitudes of each lane."""
        size = builder.op("abs", values)
        zero = builder.op("eq", size, 0.0)
        return Magnitudes(builder.op("select", zero, float("inf"), size), size)

    @staticmethod
    def none(builder: KernelBuilder, lanes: int) -> Magnitudes:
        """Return the magnitudes of no numbers."""
        least = builder.op("splat", float("inf"), dtype=F32, lanes=lanes)
        return Magnitudes(least, builder.op("splat", 0.0, dtype=F32, lanes=lanes))

    def joined(self, builder: KernelBuilder, others: Magnitudes) -> Magnitudes:
        """Return the magnitudes of these numbers and others together."""
        least = builder.op("min", self.least, others.least)
        return Magnitudes(least, builder.op("max", self.most, others.most))

    def reduced(self, builder: KernelBuilder) -> Magnitudes:
        """Return the magnitudes over all lanes, as scalars."""
        least = builder.op("reduce_min", self.least)
        return Magnitudes(least, builder.op("reduce_max", self.most))


def are_ordinary(
    builder: KernelBuilder, pieces: Pieces, a: Magnitudes, b: Magnitudes, depth: Dim
) -> Value:
    """Emit a bool: whether sums of `depth` products of numbers with these magnitudes may be
    computed from pieces."""
    count = builder.index(depth)
    most = builder.op("mul", a.most, b.most)
    least = builder.op("mul", a.least, b.least)
    conditions = [
        builder.op("le", builder.op("mul", most, builder.op("cast", count, dtype=F32)), _MOST),
        builder.op("ge", a.least, pieces.least),
        builder.op("ge", b.least, pieces.least),
        builder.op("ge", least, pieces.least_product),
    ]
    if not isinstance(depth, int):
        conditions.append(builder.op("ge", count, pieces.least_depth))
    first, *rest = conditions
    for condition in rest:
        first = builder.op("and", first, condition)
    return first
