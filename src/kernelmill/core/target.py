"""The processor that kernels are made for: what the code generator and the tile tables ask of it.

Text form (`str(target)`, an ingredient of every kernel's key):

    TRIPLE " " CPU " " (FEATURE {"," FEATURE} | "-") " vector" BITS " l1=" BYTES " l2=" BYTES

The cpu is the psABI level ("x86-64-v3"), not a model, so that equal machines share kernels.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kernelmill.core import knobs
from kernelmill.core.dtype import DType
from kernelmill.core.errors import ConfigError

_LEVELS = {
    "x86-64-v2": frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Flags of /proc/cpuinfo that each level of the x86-64 psABI adds to the one before."""

_EXTRAS = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}
"""Flags beyond the levels that kernels can use, and LLVM's names for them."""

_VECTOR_BITS = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Target:
    """One kind of processor.

    `features` are LLVM's names of what it has beyond `cpu`; `vector_bits` is the preferred register
    width; `l1_bytes` and `l2_bytes` are the data caches of one core.
    """

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024

    def __str__(self) -> str:
        features = ",".join(self.features) or "-"
        caches = f"l1={self.l1_bytes} l2={self.l2_bytes}"
        return f"{self.triple} {self.cpu} {features} vector{self.vector_bits} {caches}"

    def vector_lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` fill one vector register, in the type they compute in."""
        return max(1, self.vector_bits // dtype.compute.bits)

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def has_fma(self) -> bool:
        """True when a*b + c with one rounding is one instruction."""
        return self.cpu != "x86-64-v2"


def x86_64(level: int) -> Target:
    """The x86-64 processor of psABI level 2, 3 (AVX2, FMA) or 4 (AVX-512), with common caches."""
    cpu = f"x86-64-v{level}"
    return Target("x86_64-unknown-linux-gnu", cpu, (), _VECTOR_BITS[cpu])


def parse_target(text: str) -> Target:
    """The target that `str` gave this text. ValueError for another text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no target")
    triple, cpu, features, *numbers = match.groups()
    names = () if features == "-" else tuple(features.split(","))
    return Target(triple, cpu, names, *map(int, numbers))


_TEXT = re.compile(r"(\S+) (\S+) (\S+) vector(\d+) l1=(\d+) l2=(\d+)")


def named_target(name: str) -> Target:
    """The target called "native" (`host`) or "x86-64-v2" to "-v4". ValueError for others."""
    if name == "native":
        return host()
    if name not in _VECTOR_BITS:
        raise ValueError(f"no target {name!r}; there are: native, {', '.join(_VECTOR_BITS)}")
    return x86_64(int(name[-1]))


def cpu_flags(target: Target) -> tuple[str, ...]:
    """The flags of /proc/cpuinfo that a machine must have to run the target's code, sorted."""
    extras = {flag for flag, name in _EXTRAS.items() if name in target.features}
    levels = (flags for level, flags in _LEVELS.items() if level <= target.cpu)
    return tuple(sorted(extras.union(*levels))) if target.is_x86 else ()


def host() -> Target:
    """The processor that programs run on: this machine's, or what KERNELMILL_TARGET names of it.

    ConfigError when that is no name, or names what this machine cannot run.
    """
    name = knobs.TARGET.get()
    return machine() if name in ("", "native") else _forced(name)


@cache
def _forced(name: str) -> Target:
    setting = f"environment variable {knobs.TARGET.name}={name!r}"
    try:
        found = named_target(name)
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None
    missing = sorted(set(cpu_flags(found)) - _cpu_flags())
    if missing or platform.machine() != "x86_64":
        lacks = f", which lacks {', '.join(missing)}" if missing else ""
        raise ConfigError(f"{setting}: this machine is {machine().cpu}{lacks}")
    return found


@cache
def machine() -> Target:
    """The processor of this machine, read from /proc and /sys.

    An unknown architecture gets its baseline, with 128-bit vectors.
    """
    machine = platform.machine()
    if machine == "x86_64":
        flags = _cpu_flags()
        level = 2
        while level < 4 and _LEVELS[f"x86-64-v{level + 1}"] <= flags:
            level += 1
        extras = tuple(sorted(name for flag, name in _EXTRAS.items() if flag in flags))
        found = replace(x86_64(level), features=extras if level > 2 else ())
    else:
        found = Target(f"{machine}-unknown-linux-gnu", "generic")
    l1, l2 = _cache_bytes(1, found.l1_bytes), _cache_bytes(2, found.l2_bytes)
    return replace(found, l1_bytes=l1, l2_bytes=l2)


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _cache_bytes(level: int, default: int) -> int:
    """Size of the first core's data cache of a level; `default` where the kernel does not tell."""
    for folder in sorted(_CACHE.glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
            if kind != "Instruction" and int((folder / "level").read_text()) == level:
                return int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return default
