"""Costs of work on a processor: the figures by which schedules, fusion and estimates are chosen.

Rates are those of one core while the others do the same. The committed profiles are round figures
for cores of about 4 GHz with two vector units, so lowering is the same everywhere. Profiles of ISAs
with tiles were measured on a Sapphire Rapids Xeon of about 2 GHz: there pairs of bf16 take four
times as long as a multiply-add of vectors. `kernelmill calibrate` measures this machine
(compiler/calibration.py). Nothing here is part of an object's key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import BF16, I8, DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.core.target.isa import (
    NAMED,
    Isa,
    host_isa,
    machine_isa,
    named_isa,
    parse_isa,
    withheld,
)

Level = Literal["l1", "l2", "shared", "memory"]
"""Places of bytes: the caches of a core, the cache that cores share, memory."""

LEVELS: tuple[Level, ...] = ("l1", "l2", "shared", "memory")

_INTO_PANELS = 3.0
"""Vector operations for each vector of an operand that is copied into panels."""

_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Rates:
    """Rates of one core, in a nanosecond.

    operations   vector instructions: arithmetic, or loads from the first cache beside it
    dots         instructions of dot units by name; others run at `operations`
    bytes        written or read at each level, as between a kernel and the next
    stream       bytes of operands read in order from beyond the second cache
    latency      independent operations in progress that reach the rate
    """

    operations: float = 8.0
    dots: tuple[tuple[str, float], ...] = ()
    bytes: tuple[float, float, float, float] = (256.0, 128.0, 64.0, 16.0)
    stream: float = 64.0
    latency: int = 8

    @property
    def dependent(self) -> float:
        """Rate of vector operations of which each waits for the one before."""
        return self.operations / self.latency


@dataclass(frozen=True)
class Machine:
    """A processor: its instruction set, caches in bytes, rates, and overheads of execution.

    l1_bytes, l2_bytes  data caches of one core
    shared_bytes        largest buffer that, with the reads meanwhile, fits the cache that cores
                        share: larger ones go to memory
    launch_ns           of one more kernel in a program
    task_ns             of beginning a task
    region_ns           of opening a parallel region
    region_work_ns      the least work of a parallel region; each thread of it has at least half of
                        that. Inside an open region, half of all this is enough
    sync_ns             of letting another thread continue after this one
    """

    isa: Isa
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    shared_bytes: int = 24 * 1024 * 1024
    rates: Rates = Rates()
    launch_ns: float = 200.0
    task_ns: float = 100.0
    region_ns: float = 600.0
    region_work_ns: int = 4000
    sync_ns: float = 250.0

    def __str__(self) -> str:
        return f"{self.isa} {self.caches}"

    @property
    def caches(self) -> str:
        """Sizes of a core's caches as text: measurements serve all machines with equal ones."""
        return f"l1={self.l1_bytes} l2={self.l2_bytes}"

    def level(self, bytes: float) -> Level:
        """Return the first level that holds `bytes` bytes."""
        sizes = (self.l1_bytes, self.l2_bytes, self.shared_bytes)
        for level, size in zip(LEVELS, sizes, strict=False):
            if bytes <= size:
                return level
        return "memory"

    def passing(self, bytes: float) -> float:
        """Return nanoseconds of writing these bytes, or of reading the last kernel's output."""
        return bytes / self.rates.bytes[LEVELS.index(self.level(bytes))]

    def time(self, operations: float, bytes_by_level: Mapping[Level, float]) -> float:
        """Return nanoseconds of these vector operations and of the bytes moved at each level."""
        spent = operations / self.rates.operations
        if not bytes_by_level:
            return spent
        moved = zip(LEVELS, self.rates.bytes, strict=True)
        return spent + sum(bytes_by_level.get(level, 0.0) / rate for level, rate in moved)

    def streaming(self, bytes: float) -> float:
        """Return nanoseconds of reading these bytes of operands from beyond the second cache."""
        return bytes / self.rates.stream

    def dot_rate(self, unit: DotUnit) -> float:
        """Return the number of this unit's instructions in a nanosecond."""
        for name, rate in self.rates.dots:
            if name == unit.name:
                return rate
        return self.rates.operations

    def dot_unit(self, dtype: DType) -> DotUnit:
        """Return the unit for products of such numbers; not one of several numbers at once if its
        measured rate is below that of single multiply-adds."""
        unit = self.isa.dot_unit(dtype)
        if unit.group * self.dot_rate(unit) < self.dot_rate(MULTIPLY_ADD) and dtype.is_float:
            return MULTIPLY_ADD
        return unit

    def product_unit(self, a: DType, b: DType, m: int, n: int, k: int) -> DotUnit:
        """Return the unit for a product of such matrices, m x k and k x n in numbers: tiles where
        they take less time than vectors, or than reading b if that is longer. With few rows it is
        longer: they need no tiles."""
        vectors, tiles = self._unit_in_vectors(a, b, m, n, k), self.isa.tile_unit(a, b)
        if tiles is None:
            return vectors
        brought = self.streaming(k * n * b.bytes)
        copied = self.time((m * k * a.bytes + m * n * 4) / self.isa.vector_bytes * 2, {})
        by_tiles = max(self._instructions_ns(tiles, m, n, k), brought) + copied
        by_vectors = max(self._instructions_ns(vectors, m, n, k), brought)
        return tiles if by_tiles < by_vectors else vectors

    def _unit_in_vectors(self, a: DType, b: DType, m: int, n: int, k: int) -> DotUnit:
        """Return blocks if they take less time than rows of sums, copying a included; else rows."""
        rows, blocks = self.dot_unit(b), self.isa.block_unit(a, b)
        if blocks is None:
            return rows
        copied = self.time(m * k * a.bytes / self.isa.vector_bytes * _INTO_PANELS, {})
        by_blocks = self._instructions_ns(blocks, m, n, k) + copied
        return blocks if by_blocks < self._instructions_ns(rows, m, n, k) else rows

    def _instructions_ns(self, unit: DotUnit, m: int, n: int, k: int) -> float:
        columns = unit.columns or self.isa.vector_bits // unit.sum.bits
        sizes = ((m, unit.rows), (n, columns), (k, unit.group * unit.depth))
        return math.prod(-(-size // most) for size, most in sizes) / self.dot_rate(unit)

    def products(self, lanes: int) -> int:
        """Return multiply-adds in a nanosecond for vectors of so many lanes; at least 1."""
        return max(1, round(lanes * self.dot_rate(MULTIPLY_ADD)))

    @property
    def stream_bytes(self) -> int:
        """Bytes of operands in a nanosecond, as a whole number for symbolic estimates."""
        return max(1, math.floor(self.rates.stream))


def committed(isa: Isa, beside_tiles: bool = False) -> Machine:
    """Return the committed figures of an ISA. `beside_tiles`: of a processor with a tile unit,
    whether or not the ISA has it."""
    if isa.family == "aarch64":
        # Not measured. Caches as Neoverse N1, V1, N2 and V2 have them (Arm's technical reference
        # manuals); two vectors in each of 3 cycles a nanosecond.
        return Machine(isa, l1_bytes=64 * 1024, l2_bytes=1024 * 1024, rates=Rates(operations=6.0))
    if not isa.tile_units and not beside_tiles:
        return Machine(isa)
    rates = Rates(operations=4.1, dots=tuple(sorted(_beside_tiles(isa).items())))
    return Machine(isa, l1_bytes=48 * 1024, l2_bytes=2 * 1024 * 1024, rates=rates)


def _beside_tiles(isa: Isa) -> dict[str, float]:
    """Return rates of a Sapphire Rapids Xeon, where multiply-adds of vectors reach 130 GFLOP/s:
    68 GFLOP/s of pairs of bf16 and 580 GOP/s of bytes in vectors; of tiles, with operands in the
    first cache, 2160 GFLOP/s of bf16 and 4840 GOP/s of bytes. The levels' bytes were not
    measured there."""
    vectors = {BF16: 1.1, I8: 4.5}
    tiles = {unit.name: 0.13 if unit.b == BF16 else 0.15 for unit in isa.tile_units}
    return {isa.dot_unit(dtype).name: rate for dtype, rate in vectors.items()} | tiles


PROFILES: Mapping[str, Machine] = {name: committed(isa) for name, isa in NAMED.items()}
"""Committed figures by name of the ISA."""


def parse_machine(text: str) -> Machine:
    """Return the machine whose `str` is this text, with committed rates. ValueError for another."""
    match = re.fullmatch(r"(.+) l1=(\d+) l2=(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no machine")
    found = committed(parse_isa(match[1]))
    return replace(found, l1_bytes=int(match[2]), l2_bytes=int(match[3]))


def profile(name: str) -> Machine:
    """Return the committed profile of the ISA of this name, or of this machine's with its own
    caches for "native". ConfigError for no such name."""
    if name == "native":
        return host()
    return PROFILES.get(name) or committed(named_isa(name))


def host() -> Machine:
    """Return the machine that programs are compiled for: `core.isa.host_isa` with the committed
    figures. Its caches are this machine's own unless KERNELMILL_TARGET names an ISA: then lowering
    is the same everywhere. ConfigError as `host_isa`."""
    return _host(host_isa(), is_own(None))


def target_machine(target: str | None) -> Machine:
    """Return the machine that programs with this `config.target` are compiled for, which need not
    be able to run here (`core.isa.target_isa`): a named one has the committed figures."""
    if target is None:
        return host()
    return _host(machine_isa(), True) if target == "native" else PROFILES[target]


def is_own(target: str | None) -> bool:
    """Return whether the target is this machine itself, with its own caches."""
    forced = knobs.TARGET.get() not in ("", "native")
    return target == "native" or (target is None and not forced)


@cache
def _host(isa: Isa, own_caches: bool) -> Machine:
    if not own_caches:
        return committed(isa)
    usual = committed(isa, beside_tiles=bool(withheld()))
    l1, l2 = _cache_bytes(1, usual.l1_bytes), _cache_bytes(2, usual.l2_bytes)
    return replace(usual, l1_bytes=l1, l2_bytes=l2)


def _cache_bytes(level: int, default: int) -> int:
    """Return the size of the first core's data cache of a level; `default` if unknown."""
    for folder in sorted(_CACHE.glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
            if kind != "Instruction" and int((folder / "level").read_text()) == level:
                return int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return default
