"""What the machine can do at most: multiply-adds a second and bytes a second, measured.

Each loop is a kernel that runs on as many threads as torch uses. Multiply-adds are those by which
calibration measures a core: in registers alone, and where there is a tile unit on tiles that are
read from the first cache; the better figure is the peak. Bytes are read in order, or copied, with
ordinary stores and with stores that go past the caches, whichever is faster at that size.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelmill import codegen
from kernelmill.compiler import calibration
from kernelmill.core.dtype import BF16, F32, I8, DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.isa import Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel, VType
from kernelmill.runtime.linking.linker import link_once

FLOATS, HALVES, BYTES = "float32", "bfloat16", "int8"
_TYPES: dict[str, DType] = {FLOATS: F32, HALVES: BF16, BYTES: I8}
_REPEATS = 50
"""How often a call runs a kernel of products: calls from Python cost time."""
_READ_BYTES = 256 << 20
_VECTORS = 4
"""Vectors that a turn of a loop over memory takes."""
_ROUNDS = 5
_ROUND_SECONDS = 0.01


@dataclass(frozen=True)
class Limits:
    """What was measured at one time: operations a second by kind, bytes a second read in order,
    and the seconds of copying so many bytes (0 and 0: not asked for)."""

    operations: dict[str, float]
    read: float
    copied: int = 0
    copy_seconds: float = 0.0

    def best(self, other: Limits) -> Limits:
        """Return the better figure of each."""
        rates = {kind: max(rate, other.operations[kind]) for kind, rate in self.operations.items()}
        seconds = min(self.copy_seconds, other.copy_seconds)
        return Limits(rates, max(self.read, other.read), self.copied, seconds)


def limits(copied: int = 0) -> Limits:
    """Measure them all; takes a second."""
    rates = {kind: rate for kind in _TYPES if (rate := peak_operations(kind))}
    return Limits(rates, read_rate(), copied, copy_seconds(copied) if copied else 0.0)


def peak_operations(kind: str = FLOATS) -> float:
    """Return multiplications and additions a second, of all threads; 0 without an instruction."""
    isa = host_isa()
    units = isa.dot_units + (isa.tile_units if isa.has_tiles else ())
    rates = [unit_operations(u, isa) for u in units if u.b == _TYPES[kind]]
    return max(rates, default=0.0)


def unit_operations(unit: DotUnit, isa: Isa) -> float:
    """Return the same of one unit."""
    if unit.on_tiles:
        kernel = calibration.tile_kernel(unit)
        products = unit.rows * unit.columns * unit.depth * unit.group * calibration.TILE_PRODUCTS
    else:
        sums = min(16, isa.vector_registers - 4)  # some registers are for what is added
        kernel = calibration.dot_kernel(isa, unit, sums)
        products = unit.group * (isa.vector_bits // unit.sum.bits) * sums * calibration.TURNS
    memory = [torch.zeros(64 << 10, dtype=torch.uint8) for _ in range(torch.get_num_threads())]
    starts = [one.data_ptr() + -one.data_ptr() % 64 for one in memory]
    # Operands of 8 KiB each, and sums of 4.
    places = [[start, start + (16 << 10), start + (32 << 10)] for start in starts]
    seconds = _best(replace(kernel, tasks=_REPEATS), isa, places)
    return 2 * products * _REPEATS * torch.get_num_threads() / seconds


def read_rate() -> float:
    """Return bytes a second that all threads together read from memory in order."""
    memory, sums = torch.ones(_READ_BYTES, dtype=torch.uint8), torch.zeros(1024)
    threads = torch.get_num_threads()
    part = _READ_BYTES // threads
    places = [[memory.data_ptr() + n * part, sums.data_ptr()] for n in range(threads)]
    return _READ_BYTES / _best(_reading(part // 4), host_isa(), places)


def copy_seconds(size: int) -> float:
    """Return the shortest time in which all threads together read so many bytes and write as
    many."""
    part = size // torch.get_num_threads() // 1024 * 1024
    here, there = (torch.ones(size + 64, dtype=torch.uint8) for _ in range(2))
    source, goal = (t.data_ptr() + -t.data_ptr() % 64 for t in (here, there))
    places = [[source + n * part, goal + n * part] for n in range(torch.get_num_threads())]
    kernels = [_copying(part // 4, past) for past in (False, True)]
    return min(_best(kernel, host_isa(), places) for kernel in kernels)


def _reading(count: int) -> Kernel:
    lanes = host_isa().vector_bits // 32
    b = KernelBuilder("limit", "Bench", tasks=1)
    read, out = b.buffer("read", F32, count, "in"), b.buffer("sums", F32, 4 * lanes, "out")
    zero = b.op("splat", b.op("cast", b.index(0), dtype=F32), lanes=lanes)
    with b.loop(0, count, _VECTORS * lanes, carry=[(VType(F32, lanes), zero)] * _VECTORS) as loop:
        found = [b.load(read, loop.index + n * lanes, F32, lanes) for n in range(_VECTORS)]
        loop.carry(*(b.op("add", a, x) for a, x in zip(loop.carried, found, strict=True)))
    for number, value in enumerate(loop.results):
        b.store(out, number * lanes, value)
    return b.kernel


def _copying(count: int, past_caches: bool) -> Kernel:
    lanes = host_isa().vector_bits // 32
    b = KernelBuilder("limit", "Bench", tasks=1)
    read, out = b.buffer("read", F32, count, "in"), b.buffer("copy", F32, count, "out")
    b.kernel.buffers[1] = replace(b.kernel.buffers[1], nontemporal=past_caches)
    with b.loop(0, count, _VECTORS * lanes) as loop:
        places = [loop.index + n * lanes for n in range(_VECTORS)]
        for place, value in [(place, b.load(read, place, F32, lanes)) for place in places]:
            b.store(out, place, value)
    return b.kernel


def _best(kernel: Kernel, isa: Isa, places: Sequence[Sequence[int]]) -> float:
    """Return seconds of the quickest of several rounds in which a thread for each of the places,
    the addresses of its buffers, runs the kernel, often enough that starting it does not count."""
    linked = link_once(kernel.name, codegen.compile_kernel(kernel, isa))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)
    run = function(linked[kernel.name])
    buffers = [(pointer * len(own))(*own) for own in places]

    def often(own: ctypes.Array[Any], times: int) -> None:
        for _ in range(times):
            run(own, None, 0, kernel.tasks, None)

    with ThreadPoolExecutor(len(places)) as pool:

        def once(times: int) -> float:
            start = time.perf_counter()
            list(pool.map(often, buffers, [times] * len(places)))
            return (time.perf_counter() - start) / times

        once(1)
        times = max(1, int(_ROUND_SECONDS / once(1)))
        return min(once(times) for _ in range(_ROUNDS))
