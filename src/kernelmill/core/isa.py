"""Instruction sets: what generated code may use. The one place that names features of processors.

Text form (`str(isa)`, an ingredient of every object's key):

    TRIPLE " " CPU " " (FEATURE {"," FEATURE} | "-")

The cpu is the psABI level ("x86-64-v3"), not a model, so that equal processors share objects.
Sources: x86-64 psABI, section "Micro-Architecture Levels"; Intel SDM volume 1, chapter 14.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from kernelmill.core import knobs, tile_permission
from kernelmill.core.dtype import BF16, F32, F64, I8, I32, U8, DType
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger

_LEVELS = {
    "x86-64-v2": frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Flags of /proc/cpuinfo that each level of the x86-64 psABI adds to the one before."""

_EXTRAS = {
    "avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
}  # fmt: skip
"""Flags beyond the levels that kernels can use, and LLVM's names for them."""

_TILES = {"amx_bf16": "amx-bf16", "amx_int8": "amx-int8", "amx_tile": "amx-tile"}
"""The same of the tile unit, which a process may use when the system permits it
(core/tile_permission.py): a machine's own ISA has all of them or none."""

_EMULATED_TILES = "emulated-tiles"
"""Among the features of an ISA without the tile unit: code has its products, done in vectors."""

_X86 = "x86_64-unknown-linux-gnu"
_VECTOR_BITS = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}


class Sums(Enum):
    """In which order and with which roundings a dot unit adds products to a sum.

    Of bf16 every number that is denormal, operand or result, counts as a zero of its sign. A result
    is denormal where, rounded to 24 bits without a least exponent, it is below 2^-126.

    FUSED         one product, one rounding (where the ISA has FMA)
    WRAPPING      integers: exact, and the sum wraps
    UPPER_FIRST   bf16: fma(a0, b0, fma(a1, b1, sum)), where a1 is the upper half of a word of a
    EVEN_AND_ODD  bf16: from zero, in the order of k, one chain of fma for the lower halves and one
                  for the upper; the sum of both, lower first, is added to the sum
    """

    FUSED = 1
    WRAPPING = 2
    UPPER_FIRST = 3
    EVEN_AND_ODD = 4


@dataclass(frozen=True)
class DotUnit:
    """Instructions that add products of `a` and `b`, neighbours along k, to a `sum`.

    group     neighbours along k that lie in one word of 32 bits, the first in its lowest bits;
              1: no words
    sums      how the products are added
    rows      rows of sums that one instruction computes at most; 1: it works on vectors
    columns   columns of sums at most; 0: as many as a vector has lanes
    depth     groups along k that one instruction takes at most
    requires  LLVM's names of features any of which brings it; none: the ISA's level does
    narrow    those of them that bring it for vectors of at most 256 bits

    One of several rows works on tiles: a has a row of groups for each row of sums, b a row of
    words, one for each column of sums, for each group (neighbours along k are interleaved).
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

    def there(self, features: tuple[str, ...], bits: int) -> bool:
        """Whether these features bring it for vectors of so many bits."""
        names = self.requires + (self.narrow if bits <= 256 else ())
        own_level = not self.requires and not self.narrow
        return own_level or any(name in features for name in names)


MULTIPLY_ADD = DotUnit("multiply_add", F32, F32, F32)
"""One product and one sum a lane."""

MULTIPLY_ADD_F64 = DotUnit("multiply_add_f64", F64, F64, F64)

PAIRS_OF_16 = DotUnit("pairs_of_16", U8, I8, I32, 4, Sums.WRAPPING)
"""pmaddwd: bytes widened to 16 bits, neighbours' products added. In every x86-64."""

VNNI = DotUnit("vnni", U8, I8, I32, 4, Sums.WRAPPING, requires=("avx512vnni",), narrow=("avxvnni",))
"""vpdpbusd: four products of bytes a lane."""

VNNI_SIGNED = DotUnit("vnni_signed", I8, I8, I32, 4, Sums.WRAPPING, narrow=("avxvnniint8",))
"""vpdpbssd: the same of signed bytes alone, in vectors of at most 256 bits."""

BF16_PAIRS = DotUnit("bf16_pairs", BF16, BF16, F32, 2, Sums.UPPER_FIRST, requires=("avx512bf16",))
"""vdpbf16ps: two products of bf16 a lane."""

TILE_ROWS = 16
TILE_ROW_BYTES = 64
"""What a tile has at most; a row is whole words."""

TILE_BF16 = DotUnit("tile_bf16", BF16, BF16, F32, 2, Sums.EVEN_AND_ODD, 16, 16, 16, ("amx-bf16",))
"""tdpbf16ps. Source: Intel SDM volume 2, "TDPBF16PS", as for the sums of vdpbf16ps."""

TILE_BYTES = tuple(
    DotUnit(f"tile_{a}{b}", a, b, I32, 4, Sums.WRAPPING, 16, 16, 16, ("amx-int8",))
    for a in (I8, U8)
    for b in (I8, U8)
)
"""tdpbssd, tdpbsud, tdpbusd and tdpbuud."""

_UNITS = (VNNI_SIGNED, VNNI, PAIRS_OF_16, BF16_PAIRS)
"""Units of x86-64 whose vectors take several numbers at once, the better one of a type first."""

DOT_UNITS = {
    unit.name: unit for unit in (MULTIPLY_ADD, MULTIPLY_ADD_F64, *_UNITS, TILE_BF16, *TILE_BYTES)
}
"""All that there are, by name."""


@dataclass(frozen=True)
class Isa:
    """An instruction set. `features` are LLVM's names of what there is beyond `cpu`.

    vector_bits       the preferred register width
    vector_registers  how many there are
    outside           what its conversions make of floats that an integer type does not hold: the
                      "lowest" integer or the "nearest" (kernel/ops.py)
    line_bytes        how many bytes the caches keep and move together
    has_fma           a*b + c with one rounding is one instruction
    has_half          conversions between f16 and f32 are instructions
    has_tiles         all units that work on tiles are there
    emulates_tiles    they are not, and products are made for them all the same
    has_scale         there are instructions on exponents of f32 (AVX-512's scalef and reduce)
    has_nontemporal   aligned vectors can be stored past the caches
    has_vector_math   libtorch_cpu exports vector functions for `vector_bits`
    """

    triple: str
    cpu: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu} {','.join(self.features) or '-'}"

    @property
    def name(self) -> str:
        """What people call it: its name among `NAMED`; others by their level and features."""
        found = (name for name, isa in NAMED.items() if isa == self)
        extras = f" with {', '.join(self.features)}" if self.features else ""
        return next(found, f"{self.cpu}{extras}")

    @property
    def llvm_features(self) -> str:
        """The features as LLVM takes them: "+a,+b"."""
        return ",".join(f"+{name}" for name in self.features if name != _EMULATED_TILES)

    @property
    def family(self) -> str:
        """The first part of the triple: "x86_64", "aarch64", ..."""
        return self.triple.partition("-")[0]

    @property
    def vector_bits(self) -> int:
        return _VECTOR_BITS.get(self.cpu, 128)

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    @property
    def vector_registers(self) -> int:
        return 16 if self._is_x86 and self.vector_bits < 512 else 32

    @property
    def outside(self) -> str:
        return "lowest" if self._is_x86 else "nearest"

    @property
    def line_bytes(self) -> int:
        return 64

    @property
    def has_fma(self) -> bool:
        return self.cpu != "x86-64-v2"

    @property
    def has_half(self) -> bool:
        return self.cpu != "x86-64-v2"

    @property
    def has_tiles(self) -> bool:
        units = (TILE_BF16, *TILE_BYTES)
        return self._is_x86 and all(u.there(self.features, self.vector_bits) for u in units)

    @property
    def needs_permission(self) -> bool:
        """Whether its code may run only where the system permits it."""
        return self._is_x86 and not set(self.features).isdisjoint(_TILES.values())

    @property
    def emulates_tiles(self) -> bool:
        return _EMULATED_TILES in self.features

    @property
    def has_scale(self) -> bool:
        return self.vector_bits == 512

    @property
    def has_nontemporal(self) -> bool:
        return self._is_x86

    @property
    def has_vector_math(self) -> bool:
        return self.vector_bits >= 256

    @property
    def _is_x86(self) -> bool:
        return self.family == "x86_64"

    def lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` fill one vector register, in the type they compute in."""
        return max(1, self.vector_bits // dtype.compute.bits)

    def dot_unit(self, dtype: DType, bits: int = 0) -> DotUnit:
        """The best unit for products of such numbers (i8 by u8 counts as i8), for vectors of `bits`
        where it is not the preferred width. Others than it take one number at a time."""
        if self._is_x86:
            for unit in _UNITS:
                if unit.b == dtype and unit.there(self.features, bits or self.vector_bits):
                    return unit
        return MULTIPLY_ADD_F64 if dtype == F64 else MULTIPLY_ADD

    def tile_unit(self, a: DType, b: DType) -> DotUnit | None:
        """The unit for tiles of such numbers; None where there is none."""
        return next((unit for unit in self.tile_units if (unit.a, unit.b) == (a, b)), None)

    @property
    def tile_units(self) -> tuple[DotUnit, ...]:
        """Those that `tile_unit` chooses from."""
        return (TILE_BF16, *TILE_BYTES) if self.has_tiles or self.emulates_tiles else ()

    @property
    def dot_units(self) -> tuple[DotUnit, ...]:
        """Those that `dot_unit` chooses from."""
        first = (MULTIPLY_ADD, MULTIPLY_ADD_F64)
        if not self._is_x86:
            return first
        return first + tuple(unit for unit in _UNITS if self.dot_unit(unit.b) == unit)

    def runs(self, other: Isa) -> bool:
        """Whether a machine that is known to have this has all that code for the other needs."""
        return self.family == other.family and set(other.cpu_flags) <= set(self.cpu_flags)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        """The flags of /proc/cpuinfo that a machine must have to run its code, sorted."""
        extras = {f for f, name in (_EXTRAS | _TILES).items() if name in self.features}
        levels = (flags for level, flags in _LEVELS.items() if level <= self.cpu)
        return tuple(sorted(extras.union(*levels))) if self._is_x86 else ()


NAMED = {
    "x86-64-v2": Isa(_X86, "x86-64-v2"),
    "x86-64-v3": Isa(_X86, "x86-64-v3"),
    "x86-64-v3-vnni": Isa(_X86, "x86-64-v3", ("avxvnni",)),
    "x86-64-v3-vnni-int8": Isa(_X86, "x86-64-v3", ("avxvnni", "avxvnniint8")),
    "x86-64-v4": Isa(_X86, "x86-64-v4"),
    "x86-64-v4-vnni": Isa(_X86, "x86-64-v4", ("avx512vnni",)),
    "x86-64-v4-bf16": Isa(_X86, "x86-64-v4", ("avx512bf16", "avx512vnni")),
    "x86-64-v4-amx": Isa(_X86, "x86-64-v4", (*_TILES.values(), "avx512bf16", "avx512vnni")),
    "x86-64-v4-amx-emulated": Isa(_X86, "x86-64-v4", ("avx512bf16", "avx512vnni", _EMULATED_TILES)),
}
"""The instruction sets that can be asked for by name, besides "native". The emulated one is slow:
it runs what the tile unit would, on machines without it."""


def named_isa(name: str) -> Isa:
    """The ISA called "native" (`host_isa`) or one of `NAMED`. ValueError for others."""
    if name == "native":
        return host_isa()
    if name not in NAMED:
        raise ValueError(f"no instruction set {name!r}; there are: native, {', '.join(NAMED)}")
    return NAMED[name]


def parse_isa(text: str) -> Isa:
    """The ISA that `str` gave this text. ValueError for another text."""
    match = re.fullmatch(r"(\S+) (\S+) (\S+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no instruction set")
    triple, cpu, features = match.groups()
    return Isa(triple, cpu, () if features == "-" else tuple(features.split(",")))


def host_isa() -> Isa:
    """What programs are compiled for: this machine's ISA, or the one that KERNELMILL_TARGET names.

    ConfigError when that is no name, or names what this machine cannot run.
    """
    name = knobs.TARGET.get()
    return machine_isa() if name in ("", "native") else _forced(name)


@cache
def _forced(name: str) -> Isa:
    setting = f"environment variable {knobs.TARGET.name}={name!r}"
    try:
        found = named_isa(name)
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None
    return _checked(found, setting)


def target_isa(target: str | None, to_run: bool = True) -> Isa:
    """What `config.target` stands for: None is `host_isa`; "native" all that this machine has,
    whatever KERNELMILL_TARGET names; else one of `NAMED`.

    ConfigError says what this machine lacks of one that is `to_run` here.
    """
    if target is None:
        return host_isa()
    if target == "native":
        return machine_isa()
    return _checked(NAMED[target], f"config.target={target!r}") if to_run else NAMED[target]


def _checked(isa: Isa, setting: str) -> Isa:
    reason = why_not_here(isa)
    if reason:
        raise ConfigError(f"{setting}: {reason}")
    return isa


def why_not_here(isa: Isa) -> str:
    """Why this machine cannot run code for an ISA, in words; "" where it can. Code for tiles is
    code that it can run when the system has permitted this process to."""
    if platform.machine() != isa.family:
        return f"this machine is {platform.machine()}"
    if missing := sorted(set(isa.cpu_flags) - cpuinfo_flags()):
        return f"this machine is {machine_isa().cpu}, which lacks {', '.join(missing)}"
    refusal = tile_permission.refusal() if isa.needs_permission else ""
    return f"this process may not use the tile unit: {refusal}" if refusal else ""


@cache
def machine_isa() -> Isa:
    """What this machine's processor has, by /proc/cpuinfo, and the system lets this process use; a
    warning says what it does not. An unknown architecture gets its baseline, with 128-bit
    vectors."""
    if platform.machine() != "x86_64":
        return Isa(f"{platform.machine()}-unknown-linux-gnu", "generic")
    flags = cpuinfo_flags()
    level = 2
    while level < 4 and _LEVELS[f"x86-64-v{level + 1}"] <= flags:
        level += 1
    extras = [name for flag, name in _EXTRAS.items() if flag in flags]
    if reason := withheld():
        get_logger("core").warning("code is compiled without tiles: %s", reason)
    elif _has_tile_unit(flags):
        extras += _TILES.values()
    return Isa(_X86, f"x86-64-v{level}", tuple(sorted(extras)) if level > 2 else ())


def withheld() -> str:
    """Why this machine's ISA goes without a unit that its processor has, in words; "" where there
    is none such."""
    if platform.machine() != "x86_64" or not _has_tile_unit(cpuinfo_flags()):
        return ""
    refusal = tile_permission.refusal()
    return f"{', '.join(sorted(_TILES))} may not be used: {refusal}" if refusal else ""


def _has_tile_unit(flags: frozenset[str]) -> bool:
    """Whether a processor with these flags has all of it."""
    return _TILES.keys() <= flags


def processor_name() -> str:
    """The model of this machine's processor as /proc/cpuinfo has it; "" where that does not say."""
    return _cpuinfo("model name")


def cpuinfo_flags() -> frozenset[str]:
    """The flags in /proc/cpuinfo of the first processor; none where there is no such file."""
    return frozenset(_cpuinfo("flags").split())


def _cpuinfo(field: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    line = next((line for line in text.splitlines() if line.startswith(field)), "")
    return line.partition(":")[2].strip()
