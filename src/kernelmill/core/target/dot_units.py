"""Dot units: instructions that multiply numbers and add the products to a sum."""

from __future__ import annotations

from enum import Enum

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import BF16, F32, F64, I8, I16, I32, I64, U8, DType


class Sums(Enum):
    """The order and the roundings in which a dot unit adds products to a sum.

    Of bf16 every number that is denormal, operand or result, counts as a zero of its sign. A result
    is denormal where, rounded to 24 bits without a least exponent, it is below 2^-126.

    FUSED         one product, one rounding (where the ISA has FMA)
    WRAPPING      integers: exact, and the sum wraps
    UPPER_FIRST   bf16: fma(a0, b0, fma(a1, b1, sum)), where a1 is the upper half of a word of a
    EVEN_AND_ODD  bf16: from zero, in the order of k, one chain of fma for the lower halves and one
                  for the upper; the sum of both, lower first, is added to the sum
    TO_ODD        bf16, two at a time: the sum of both products, which are exact, is added to the
                  sum; a sum that is not exact becomes the neighbour whose last bit is set, and what
                  is larger than any f32 infinite
    """

    FUSED = 1
    WRAPPING = 2
    UPPER_FIRST = 3
    EVEN_AND_ODD = 4
    TO_ODD = 5


@dataclass(frozen=True)
class DotUnit:
    """A dot unit: instructions that add products of `a` and `b`, neighbours along k, to a `sum`.

    group     neighbours along k in one word, the first in its lowest bits; 1: no words
    sums      order and roundings of the additions
    rows      most rows of sums of one instruction; 1: it works on vectors
    columns   most columns of sums; 0: as many as a vector has lanes
    depth     most groups along k of one instruction
    requires  LLVM's names of features any of which includes it; none: the ISA's level does
    narrow    those of them that include it for vectors of at most 256 bits
    halves    unit that multiplies the even and the odd numbers of its words apart, widened to twice
              their bits, in fewer instructions than this has; None if there is none

    A unit of several rows and of several groups works on tiles: a has a row of groups for each row
    of sums, b a row of words, one for each column of sums, for each group (neighbours along k are
    interleaved).

    A unit of several rows and a single group works on blocks in vectors: a has a word for each row
    of sums, b one for each column, and the sums are the lanes of one vector, row-major.
    """

    name: str
    a: DType
    b: DType
    sum: DType
    group: int = 1
    sums: Sums = Sums.FUSED
    rows: int = 1
    columns: int = 0
    depth: int = 1
    requires: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    halves: DotUnit | None = None

    @property
    def on_tiles(self) -> bool:
        """True if it works on tiles."""
        return self.depth > 1

    @property
    def on_blocks(self) -> bool:
        """True if it works on blocks in vectors."""
        return self.rows > 1 and not self.on_tiles

    @property
    def word(self) -> DType:
        """The integer type of a word of a or b: as many bits as its numbers."""
        return I64 if self.group * self.b.bits == I64.bits else I32

    def words(self, sums: int) -> tuple[int, int]:
        """Return the number of words of a and of b for a vector of `sums` sums."""
        return (self.rows, self.columns) if self.on_blocks else (sums, sums)

    def there(self, features: tuple[str, ...], bits: int) -> bool:
        """Return whether these features include it for vectors of `bits` bits."""
        names = self.requires + (self.narrow if bits <= 256 else ())
        own_level = not self.requires and not self.narrow
        return own_level or any(name in features for name in names)


MULTIPLY_ADD = DotUnit("multiply_add", F32, F32, F32)
"""One product and one sum a lane."""

MULTIPLY_ADD_F64 = DotUnit("multiply_add_f64", F64, F64, F64)

WORDS_OF_16 = DotUnit("words_of_16", I16, I16, I32, 2, Sums.WRAPPING)
"""pmaddwd: two products of 16 bits a lane. In every x86-64."""

PAIRS_OF_16 = DotUnit("pairs_of_16", U8, I8, I32, 4, Sums.WRAPPING, halves=WORDS_OF_16)
"""Two products of bytes a lane, widened to 16 bits first, by pmaddwd."""

VNNI = DotUnit("vnni", U8, I8, I32, 4, Sums.WRAPPING, requires=("avx512vnni",), narrow=("avxvnni",))
"""vpdpbusd: four products of bytes a lane."""

VNNI_SIGNED = DotUnit("vnni_signed", I8, I8, I32, 4, Sums.WRAPPING, narrow=("avxvnniint8",))
"""vpdpbssd: four products of signed bytes a lane, in vectors of at most 256 bits."""

BF16_PAIRS = DotUnit("bf16_pairs", BF16, BF16, F32, 2, Sums.UPPER_FIRST, requires=("avx512bf16",))
"""vdpbf16ps: two products of bf16 a lane."""

TILE_ROWS = 16
TILE_ROW_BYTES = 64
"""Largest tile; a row is whole words."""

TILE_BF16 = DotUnit("tile_bf16", BF16, BF16, F32, 2, Sums.EVEN_AND_ODD, 16, 16, 16, ("amx-bf16",))
"""tdpbf16ps. Source: Intel SDM volume 2, "TDPBF16PS", as for the sums of vdpbf16ps."""

TILE_BYTES = tuple(
    DotUnit(f"tile_{a}{b}", a, b, I32, 4, Sums.WRAPPING, 16, 16, 16, ("amx-int8",))
    for a in (I8, U8)
    for b in (I8, U8)
)
"""tdpbssd, tdpbsud, tdpbusd and tdpbuud."""

SDOT = DotUnit("sdot", I8, I8, I32, 4, Sums.WRAPPING, requires=("dotprod",))
"""sdot of AArch64: four products of signed bytes a lane."""

USDOT = DotUnit("usdot", U8, I8, I32, 4, Sums.WRAPPING, requires=("i8mm",))
"""usdot of AArch64: four products of unsigned by signed bytes a lane."""

BFDOT = DotUnit("bfdot", BF16, BF16, F32, 2, Sums.TO_ODD, requires=("bf16",))
"""bfdot of AArch64: two products of bf16 a lane. Source: Arm Architecture Reference Manual,
"BFDotAdd", for a process that has not set FPCR.EBF, as none does at its start."""

BLOCK_BYTES = tuple(
    DotUnit(name, a, b, I32, 8, Sums.WRAPPING, 2, 2, requires=("i8mm",))
    for name, a, b in (("smmla", I8, I8), ("ummla", U8, U8), ("usmmla", U8, I8))
)
"""smmla, ummla and usmmla of AArch64: two rows by two columns, each of eight bytes."""

BFMMLA = DotUnit("bfmmla", BF16, BF16, F32, 4, Sums.TO_ODD, 2, 2, requires=("bf16",))
"""bfmmla of AArch64: two rows by two columns, each of four bf16. Source: as for bfdot,
"BFMatMulAdd": twice what bfdot does."""

DOT_UNITS = {
    unit.name: unit
    for unit in (
        MULTIPLY_ADD, MULTIPLY_ADD_F64, WORDS_OF_16, PAIRS_OF_16, VNNI, VNNI_SIGNED, BF16_PAIRS,
        TILE_BF16, *TILE_BYTES, SDOT, USDOT, BFDOT, *BLOCK_BYTES, BFMMLA,
    )
}  # fmt: skip
"""All dot units by name."""
