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
from functools import cache
from pathlib import Path

from kernelmill.core import knobs
from kernelmill.core.dtype import BF16, F32, F64, I8, I32, U8, DType
from kernelmill.core.errors import ConfigError

_LEVELS = {
    "x86-64-v2": frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Flags of /proc/cpuinfo that each level of the x86-64 psABI adds to the one before."""

_EXTRAS = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}
"""Flags beyond the levels that kernels can use, and LLVM's names for them."""

_X86 = "x86_64-unknown-linux-gnu"
_VECTOR_BITS = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}


STREAMING_BYTES = 24 << 20
"""A buffer of this size and what is read meanwhile fill the caches that the cores share."""


@dataclass(frozen=True)
class DotUnit:
    """Instructions that add products of `a` and `b`, neighbours along k, to a `sum`.

    group     numbers along k that one instruction takes at once; above 1 they are packed in 32 bits
    rows      rows of sums that one instruction computes; 1: it works on vectors
    columns   columns of sums; 0: as many as a vector has lanes
    requires  LLVM's names of features any of which brings it; none: the ISA's level does
    narrow    those of them that bring it for vectors of at most 256 bits
    """

    name: str
    a: DType
    b: DType
    sum: DType
    group: int = 1
    rows: int = 1
    columns: int = 0
    requires: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()

    def there(self, features: tuple[str, ...], bits: int) -> bool:
        """Whether these features bring it for vectors of so many bits."""
        names = self.requires + (self.narrow if bits <= 256 else ())
        return not names or any(name in features for name in names)


MULTIPLY_ADD = DotUnit("multiply_add", F32, F32, F32)
"""One product and one sum a lane, with one rounding where the ISA has FMA."""

MULTIPLY_ADD_F64 = DotUnit("multiply_add_f64", F64, F64, F64)

PAIRS_OF_16 = DotUnit("pairs_of_16", U8, I8, I32, group=4)
"""pmaddwd: bytes widened to 16 bits, neighbours' products added. In every x86-64."""

VNNI = DotUnit("vnni", U8, I8, I32, group=4, requires=("avx512vnni",), narrow=("avxvnni",))
"""vpdpbusd: four products of bytes a lane."""

BF16_PAIRS = DotUnit("bf16_pairs", BF16, BF16, F32, group=2, requires=("avx512bf16",))
"""vdpbf16ps: two products of bf16 a lane; denormals count as zeros."""

_UNITS = (VNNI, PAIRS_OF_16, BF16_PAIRS)
"""Units of x86-64 that take several numbers at once, the better one of a type first."""


@dataclass(frozen=True)
class Isa:
    """An instruction set. `features` are LLVM's names of what there is beyond `cpu`.

    vector_bits       the preferred register width
    vector_registers  how many there are
    has_fma           a*b + c with one rounding is one instruction
    has_half          conversions between f16 and f32 are instructions
    has_scale         there are instructions on exponents of f32 (AVX-512's scalef and reduce)
    has_streaming     aligned vectors can be stored past the caches
    has_vector_math   libtorch_cpu exports vector functions for `vector_bits`
    """

    triple: str
    cpu: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu} {','.join(self.features) or '-'}"

    @property
    def llvm_features(self) -> str:
        """The features as LLVM takes them: "+a,+b"."""
        return ",".join(f"+{feature}" for feature in self.features)

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
    def has_fma(self) -> bool:
        return self.cpu != "x86-64-v2"

    @property
    def has_half(self) -> bool:
        return self.cpu != "x86-64-v2"

    @property
    def has_scale(self) -> bool:
        return self.vector_bits == 512

    @property
    def has_streaming(self) -> bool:
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

    @property
    def dot_units(self) -> tuple[DotUnit, ...]:
        """Those that `dot_unit` chooses from."""
        first = (MULTIPLY_ADD, MULTIPLY_ADD_F64)
        if not self._is_x86:
            return first
        return first + tuple(unit for unit in _UNITS if self.dot_unit(unit.b) == unit)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        """The flags of /proc/cpuinfo that a machine must have to run its code, sorted."""
        extras = {flag for flag, name in _EXTRAS.items() if name in self.features}
        levels = (flags for level, flags in _LEVELS.items() if level <= self.cpu)
        return tuple(sorted(extras.union(*levels))) if self._is_x86 else ()


NAMED = {
    "x86-64-v2": Isa(_X86, "x86-64-v2"),
    "x86-64-v3": Isa(_X86, "x86-64-v3"),
    "x86-64-v3-vnni": Isa(_X86, "x86-64-v3", ("avxvnni",)),
    "x86-64-v4": Isa(_X86, "x86-64-v4"),
    "x86-64-v4-vnni": Isa(_X86, "x86-64-v4", ("avx512vnni",)),
    "x86-64-v4-bf16": Isa(_X86, "x86-64-v4", ("avx512bf16", "avx512vnni")),
}
"""The instruction sets that can be asked for by name, besides "native"."""


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
    missing = sorted(set(found.cpu_flags) - cpuinfo_flags())
    if missing or platform.machine() != found.family:
        lacks = f", which lacks {', '.join(missing)}" if missing else ""
        raise ConfigError(f"{setting}: this machine is {machine_isa().cpu}{lacks}")
    return found


@cache
def machine_isa() -> Isa:
    """What this machine's processor has, by /proc/cpuinfo. An unknown architecture gets its
    baseline, with 128-bit vectors."""
    if platform.machine() != "x86_64":
        return Isa(f"{platform.machine()}-unknown-linux-gnu", "generic")
    flags = cpuinfo_flags()
    level = 2
    while level < 4 and _LEVELS[f"x86-64-v{level + 1}"] <= flags:
        level += 1
    extras = tuple(sorted(name for flag, name in _EXTRAS.items() if flag in flags))
    return Isa(_X86, f"x86-64-v{level}", extras if level > 2 else ())


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
