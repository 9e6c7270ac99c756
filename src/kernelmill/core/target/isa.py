"""Instruction sets that generated code may use. Only this module, core/target/families.py,
core/target/dot_units.py and codegen/targets name features of processors.

Text form (`str(isa)`, an ingredient of every object's key):

    TRIPLE " " CPU " " (FEATURE {"," FEATURE} | "-")

The cpu is a level of its family ("x86-64-v3"), not a model, so that equal processors share objects.
What levels have is data in core/target/families.py.

Tiles are registers of 8 KiB a thread. Linux keeps no memory to save them in before a process has
asked for the permission, and code that touches them without it ends the process. The permission
holds for all threads of the process, later ones too, and for forked children; a program that is
executed asks anew. Source: Linux, Documentation/arch/x86/xstate.rst and uapi/asm/prctl.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import F64, DType
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger
from kernelmill.core.target.dot_units import MULTIPLY_ADD, MULTIPLY_ADD_F64, DotUnit
from kernelmill.core.target.families import AARCH64, FAMILIES, UNKNOWN, X86_64, Family, Level

_ARCH_PRCTL = 158
_GET_PERMITTED, _REQUEST = 0x1022, 0x1023
_TILE_DATA = 18

_REASONS = {
    errno.EINVAL: "this kernel cannot be asked for it (Linux can from 5.16 on)",
    errno.ENOSYS: "this kernel cannot be asked for it (Linux can from 5.16 on)",
    errno.EOPNOTSUPP: "the system does not switch it on",
    errno.EPERM: "the system forbids it (filters of system calls do)",
    errno.EACCES: "the system forbids it (filters of system calls do)",
    errno.ENOSPC: "a thread's alternate signal stack is too small to save it on",
    0: "the system agreed, and did not permit it",
}


@cache
def refusal() -> str:
    """Return the reason why this process may not use tiles; "" if it may. The system is asked at
    the first call, and its answer holds as long as the process."""
    if _permitted():
        return ""
    error = _arch_prctl(_REQUEST, _TILE_DATA)
    if not error and _permitted():
        return ""
    return _REASONS.get(error) or os.strerror(error)


def _permitted() -> bool:
    """Return whether tiles are permitted. A filter of system calls may have faked the request."""
    bits = ctypes.c_uint64(0)
    failed = _arch_prctl(_GET_PERMITTED, ctypes.addressof(bits))
    return not failed and bool(bits.value >> _TILE_DATA & 1)


def _arch_prctl(code: int, argument: int) -> int:
    """Return the number of the error; 0 without one."""
    library: Any = ctypes.CDLL(None, use_errno=True)
    call = library.syscall
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_ulong)
    call.restype = ctypes.c_long
    return ctypes.get_errno() if call(_ARCH_PRCTL, code, argument) < 0 else 0


_EMULATED_TILES = "emulated-tiles"
"""A feature of ISAs without the tile unit: code has its products, computed in vectors."""


@dataclass(frozen=True)
class Isa:
    """An instruction set. `features` are LLVM's names of features beyond `cpu`.

    vector_bits       the preferred register width
    vector_registers  number of vector registers
    outside           result of conversions of floats that an integer type does not hold: the
                      "lowest" integer or the "nearest" (kernel/ir.py)
    line_bytes        bytes of a cache line
    has_fma           a*b + c with one rounding is one instruction
    has_half          conversions between f16 and f32 are instructions
    loads_half        one of these loads a vector of f16 too
    has_tiles         all units that work on tiles are included
    emulates_tiles    they are not, and their products are emulated
    has_scale         instructions on exponents of f32 exist (AVX-512's scalef and reduce)
    has_lane_operand  a multiply-add takes one lane of a vector for all lanes of another
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
        """Its name among `NAMED`; of others level and features."""
        found = (name for name, isa in NAMED.items() if isa == self)
        extras = f" with {', '.join(self.features)}" if self.features else ""
        return next(found, f"{self.cpu}{extras}")

    @property
    def family(self) -> str:
        """The first part of the triple: "x86_64", "aarch64", ..."""
        return self.triple.partition("-")[0]

    @property
    def is_known(self) -> bool:
        """True if its family has such a level; other properties require that."""
        return self.cpu in self._family.levels

    @property
    def _family(self) -> Family:
        return FAMILIES.get(self.family, UNKNOWN)

    @property
    def _level(self) -> Level:
        return self._family.levels[self.cpu]

    @property
    def llvm_cpu(self) -> str:
        """LLVM's name of a processor of this level."""
        return self._level.llvm_cpu

    @property
    def llvm_features(self) -> str:
        """Features besides `llvm_cpu`, in LLVM's form: "+a,+b"."""
        own = (name for name in self.features if name != _EMULATED_TILES)
        return ",".join(f"+{name}" for name in (*self._level.llvm_features, *own))

    @property
    def vector_bits(self) -> int:
        return self._level.vector_bits

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    @property
    def vector_registers(self) -> int:
        return self._level.vector_registers

    @property
    def outside(self) -> str:
        return self._family.outside

    @property
    def line_bytes(self) -> int:
        return 64

    @property
    def has_fma(self) -> bool:
        return self._level.has_fma

    @property
    def has_half(self) -> bool:
        return self._level.has_half

    @property
    def loads_half(self) -> bool:
        return self.has_half and self._family.has_memory_operand

    @property
    def has_tiles(self) -> bool:
        units = self._family.tile_units
        return bool(units) and all(u.there(self.features, self.vector_bits) for u in units)

    @property
    def needs_permission(self) -> bool:
        """True if its code may run only where the system permits it."""
        return not set(self.features).isdisjoint(self._family.permitted.values())

    @property
    def emulates_tiles(self) -> bool:
        return _EMULATED_TILES in self.features

    @property
    def has_scale(self) -> bool:
        return self._level.has_scale

    @property
    def has_lane_operand(self) -> bool:
        return self._family.has_lane_operand

    @property
    def has_nontemporal(self) -> bool:
        return self._family.has_nontemporal

    @property
    def has_vector_math(self) -> bool:
        return self._level.has_vector_math

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of `dtype`, as computed with, fill one vector register."""
        return max(1, self.vector_bits // dtype.compute.bits)

    def dot_unit(self, dtype: DType, bits: int = 0) -> DotUnit:
        """Return the best unit for products of such numbers (i8 by u8 counts as i8), for vectors of
        `bits` if that is not 0. Other units take one number at a time."""
        for unit in self._family.units:
            if unit.b == dtype and unit.there(self.features, bits or self.vector_bits):
                return unit
        return MULTIPLY_ADD_F64 if dtype == F64 else MULTIPLY_ADD

    @property
    def word_unit(self) -> DotUnit | None:
        """The unit for two integers of 16 bits a lane; None if there is none."""
        return self._family.word_unit

    def tile_unit(self, a: DType, b: DType) -> DotUnit | None:
        """Return the unit for tiles of such numbers; None if there is none."""
        return next((unit for unit in self.tile_units if (unit.a, unit.b) == (a, b)), None)

    def block_unit(self, a: DType, b: DType) -> DotUnit | None:
        """Return the unit for blocks of such numbers in vectors; None if there is none."""
        return next((unit for unit in self.block_units if (unit.a, unit.b) == (a, b)), None)

    @property
    def block_units(self) -> tuple[DotUnit, ...]:
        """The units that `block_unit` chooses from."""
        units = self._family.block_units
        return tuple(unit for unit in units if unit.there(self.features, self.vector_bits))

    @property
    def tile_units(self) -> tuple[DotUnit, ...]:
        """The units that `tile_unit` chooses from."""
        return self._family.tile_units if self.has_tiles or self.emulates_tiles else ()

    @property
    def dot_units(self) -> tuple[DotUnit, ...]:
        """The units that `dot_unit` chooses from."""
        first = (MULTIPLY_ADD, MULTIPLY_ADD_F64)
        return first + tuple(u for u in self._family.units if self.dot_unit(u.b) == u)

    def runs(self, other: Isa) -> bool:
        """Return whether a machine with this ISA has all features that code for `other` needs."""
        return self.family == other.family and set(other.cpu_flags) <= set(self.cpu_flags)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        """Flags of /proc/cpuinfo that a machine needs to run its code, sorted."""
        family = self._family
        extras = {f for f, n in {**family.extras, **family.permitted}.items() if n in self.features}
        return tuple(sorted(extras | family.flags_of(self.cpu)))


_X86, _ARM = X86_64.triple, AARCH64.triple

NAMED = {
    "x86-64-v2": Isa(_X86, "x86-64-v2"),
    "x86-64-v3": Isa(_X86, "x86-64-v3"),
    "x86-64-v3-vnni": Isa(_X86, "x86-64-v3", ("avxvnni",)),
    "x86-64-v3-vnni-int8": Isa(_X86, "x86-64-v3", ("avxvnni", "avxvnniint8")),
    "x86-64-v4": Isa(_X86, "x86-64-v4"),
    "x86-64-v4-vnni": Isa(_X86, "x86-64-v4", ("avx512vnni",)),
    "x86-64-v4-bf16": Isa(_X86, "x86-64-v4", ("avx512bf16", "avx512vnni")),
    "x86-64-v4-amx": Isa(
        _X86, "x86-64-v4", (*X86_64.permitted.values(), "avx512bf16", "avx512vnni")
    ),
    "x86-64-v4-amx-emulated": Isa(_X86, "x86-64-v4", ("avx512bf16", "avx512vnni", _EMULATED_TILES)),
    "aarch64-neon": Isa(_ARM, "armv8-a"),
    "aarch64-v8.2": Isa(_ARM, "armv8.2-a"),
    "aarch64-v8.2-dotprod": Isa(_ARM, "armv8.2-a", ("dotprod",)),
    "aarch64-v8.6": Isa(_ARM, "armv8.2-a", ("bf16", "dotprod", "i8mm")),
}
"""Instruction sets by name, besides "native". The emulated one is slow: it does the tile unit's
work on machines without it."""


def named_isa(name: str) -> Isa:
    """Return the ISA called "native" (`host_isa`) or one of `NAMED`. ConfigError for others."""
    if name == "native":
        return host_isa()
    if name not in NAMED:
        raise ConfigError(f"no instruction set {name!r}; there are: native, {', '.join(NAMED)}")
    return NAMED[name]


def parse_isa(text: str) -> Isa:
    """Return the ISA whose `str` is this text. ValueError for another text."""
    match = re.fullmatch(r"(\S+) (\S+) (\S+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no instruction set")
    triple, cpu, features = match.groups()
    found = Isa(triple, cpu, () if features == "-" else tuple(features.split(",")))
    if not found.is_known:
        raise ValueError(f"{text!r}: {cpu!r} is no level of {found.family}")
    return found


def host_isa() -> Isa:
    """Return the ISA that programs are compiled for: this machine's, or the one that
    KERNELMILL_TARGET names. ConfigError when that is no name, or names one that this machine cannot
    run."""
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
    """Return the ISA for `config.target`: None is `host_isa`; "native" all that this machine has,
    whatever KERNELMILL_TARGET names; else one of `NAMED`. ConfigError names the features that this
    machine lacks of one that is `to_run` here."""
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
    """Return the reason why this machine cannot run code for an ISA; "" if it can. Code for tiles
    counts as runnable once the system has permitted it to this process."""
    if platform.machine() != isa.family:
        return f"this machine is {platform.machine()}"
    if missing := sorted(set(isa.cpu_flags) - cpuinfo_flags()):
        return f"this machine is {machine_isa().cpu}, which lacks {', '.join(missing)}"
    why = refusal() if isa.needs_permission else ""
    return f"this process may not use the tile unit: {why}" if why else ""


@cache
def machine_isa() -> Isa:
    """Return the features of this machine's processor, by /proc/cpuinfo, that the system lets this
    process use; a warning names refused ones. An unknown architecture gets its baseline, with
    128-bit vectors."""
    family = FAMILIES.get(platform.machine())
    if family is None:
        return Isa(f"{platform.machine()}-unknown-linux-gnu", "generic")
    flags = cpuinfo_flags()
    level = family.highest(flags)
    extras = [name for flag, name in family.extras.items() if flag in flags]
    if reason := withheld():
        get_logger("core").warning("code is compiled without tiles: %s", reason)
    elif _permitted_are_there(family, flags):
        extras += family.permitted.values()
    has_extras = family.levels[level].has_extras
    return Isa(family.triple, level, tuple(sorted(extras)) if has_extras else ())


def withheld() -> str:
    """Return the reason why this ISA lacks a unit that the processor has; "" if none is lacking."""
    family = FAMILIES.get(platform.machine(), UNKNOWN)
    if not _permitted_are_there(family, cpuinfo_flags()):
        return ""
    why = refusal()
    return f"{', '.join(sorted(family.permitted))} may not be used: {why}" if why else ""


def _permitted_are_there(family: Family, flags: frozenset[str]) -> bool:
    """Return whether a processor with these flags has all features that need permission."""
    return bool(family.permitted) and family.permitted.keys() <= flags


def processor_name() -> str:
    """Return the model of this machine's processor by /proc/cpuinfo; "" if that has none."""
    if model := _cpuinfo("model name"):
        return model
    maker, part = _cpuinfo("CPU implementer"), _cpuinfo("CPU part")
    return f"implementer {maker}, part {part}" if maker and part else ""


def cpuinfo_flags() -> frozenset[str]:
    """Return the first processor's flags in /proc/cpuinfo; none where there is no such file."""
    family = FAMILIES.get(platform.machine(), UNKNOWN)
    return frozenset(_cpuinfo(family.flags_field).split())


def _cpuinfo(field: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    line = next((line for line in text.splitlines() if line.startswith(field)), "")
    return line.partition(":")[2].strip()
