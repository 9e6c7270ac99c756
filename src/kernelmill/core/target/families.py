"""Families of processors: features of their levels, and names of features beyond them.

Sources: x86-64 psABI, section "Micro-Architecture Levels"; Intel SDM volume 1, chapter 14; Arm
Architecture Reference Manual for A-profile, "Armv8-A architecture extensions"; Linux, "ARM64 ELF
hwcaps".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.core.target.dot_units import (
    BF16_PAIRS,
    BFDOT,
    BFMMLA,
    BLOCK_BYTES,
    PAIRS_OF_16,
    SDOT,
    TILE_BF16,
    TILE_BYTES,
    USDOT,
    VNNI,
    VNNI_SIGNED,
    WORDS_OF_16,
    DotUnit,
)


@dataclass(frozen=True)
class Level:
    """The features that all processors of a level have.

    flags             of /proc/cpuinfo that it adds to the level below
    llvm_cpu          LLVM's name of the processor, which `llvm_features` extend
    has_extras        the family's features beyond its levels may come with this one

    The others are those of `Isa`.
    """

    llvm_cpu: str
    flags: frozenset[str] = frozenset()
    llvm_features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 32
    has_fma: bool = True
    has_half: bool = True
    has_scale: bool = False
    has_vector_math: bool = False
    has_extras: bool = True


@dataclass(frozen=True, eq=False)
class Family:
    """A family of processors, which run the same instructions.

    levels           by name, each of which includes the one before
    extras           flags of /proc/cpuinfo beyond the levels that kernels can use, and LLVM's names
                     for them
    permitted        flags and names of features that need the system's permission
                     (core/target/isa.py): a machine's own ISA has all of them or none
    units            dot units of vectors with several numbers a lane, the better one of a type
    first
    word_unit        for two integers of 16 bits a lane, if vectors of all levels have one
    block_units      dot units whose vectors are blocks of sums
    tile_units       dot units that all of `permitted` together include
    flags_field      field of /proc/cpuinfo with the flags
    outside, has_nontemporal, has_lane_operand  those of `Isa`
    has_memory_operand  instructions other than loads have memory operands
    """

    triple: str
    levels: Mapping[str, Level]
    extras: Mapping[str, str] = field(default_factory=dict[str, str])
    permitted: Mapping[str, str] = field(default_factory=dict[str, str])
    units: tuple[DotUnit, ...] = ()
    word_unit: DotUnit | None = None
    block_units: tuple[DotUnit, ...] = ()
    tile_units: tuple[DotUnit, ...] = ()
    flags_field: str = "flags"
    outside: str = "nearest"
    has_nontemporal: bool = False
    has_lane_operand: bool = False
    has_memory_operand: bool = False

    def flags_of(self, level: str) -> frozenset[str]:
        """Return all flags that a machine of a level has."""
        names = list(self.levels)
        known = names[: names.index(level) + 1]
        return frozenset[str]().union(*(self.levels[name].flags for name in known))

    def highest(self, flags: frozenset[str]) -> str:
        """Return the highest level whose flags are all present; the lowest one if there is none."""
        first, *others = self.levels
        for name in others:
            if not self.levels[name].flags <= flags:
                break
            first = name
        return first


X86_64 = Family(
    "x86_64-unknown-linux-gnu",
    {
        "x86-64-v2": Level(
            "x86-64-v2",
            frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
            vector_registers=16,
            has_fma=False,
            has_half=False,
            has_extras=False,
        ),
        "x86-64-v3": Level(
            "x86-64-v3",
            frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
            vector_bits=256,
            vector_registers=16,
            has_vector_math=True,
        ),
        "x86-64-v4": Level(
            "x86-64-v4",
            frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
            vector_bits=512,
            has_scale=True,
            has_vector_math=True,
        ),
    },
    extras={
        "avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni",
        "avx_vnni_int8": "avxvnniint8",
    },
    permitted={"amx_bf16": "amx-bf16", "amx_int8": "amx-int8", "amx_tile": "amx-tile"},
    units=(VNNI_SIGNED, VNNI, PAIRS_OF_16, BF16_PAIRS),
    word_unit=WORDS_OF_16,
    tile_units=(TILE_BF16, *TILE_BYTES),
    outside="lowest",
    has_nontemporal=True,
    has_memory_operand=True,
)  # fmt: skip

AARCH64 = Family(
    "aarch64-unknown-linux-gnu",
    {
        "armv8-a": Level("generic", frozenset({"asimd"})),
        "armv8.2-a": Level(
            "generic",
            frozenset({"asimdrdm", "atomics", "crc32", "dcpop"}),
            ("v8.2a",),
        ),
    },
    extras={"asimddp": "dotprod", "bf16": "bf16", "i8mm": "i8mm"},
    units=(SDOT, USDOT, BFDOT),
    block_units=(*BLOCK_BYTES, BFMMLA),
    flags_field="Features",
    has_lane_operand=True,
)

FAMILIES = {"x86_64": X86_64, "aarch64": AARCH64}
"""Families by the system's name of the architecture, the first part of the triple."""

UNKNOWN = Family("", {"generic": Level("generic")})
"""Any other architecture: 128-bit vectors, and LLVM's baseline."""
