"""What the machine can do at most: multiply-adds a second and bytes a second, measured.

Each loop is written as LLVM IR and runs on as many threads as torch uses. Multiply-adds run in
registers alone, on independent sums, and where there is a tile unit on tiles that are read from the
first cache; the better figure is the peak. Bytes are read in order, or copied, with ordinary stores
and with stores that go past the caches, whichever is faster at that size.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from kernelmill import codegen
from kernelmill.core.dtype import BF16, I8, U8
from kernelmill.core.target.isa import Isa, host_isa
from kernelmill.runtime.linking.linker import link_once

if TYPE_CHECKING:  # the sources of another revision, which tools.bench.revisions measures, lack it
    from kernelmill.core.target.dot_units import DotUnit

FLOATS, HALVES, BYTES = "float32", "bfloat16", "int8"
_SUMS = 16
"""Independent sums at most; where registers are few some must be left for what is added."""
_OTHERS = 4
_LOOPS = 400_000
_READ_BYTES = 256 << 20
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
        """The better figure of each."""
        return Limits(
            {kind: max(rate, other.operations[kind]) for kind, rate in self.operations.items()},
            max(self.read, other.read),
            self.copied,
            min(self.copy_seconds, other.copy_seconds),
        )


def limits(copied: int = 0) -> Limits:
    """Measures them all; takes a second."""
    rates = {kind: peak_operations(kind) for kind in (FLOATS, HALVES, BYTES)}
    return Limits(
        {kind: rate for kind, rate in rates.items() if rate is not None},
        read_rate(),
        copied,
        copy_seconds(copied) if copied else 0.0,
    )


Loop = Callable[[int, int, int], None]
"""`loop(from address, to address, count)`."""


def peak_operations(kind: str) -> float | None:
    """Multiplications and additions a second, of all threads; None without an instruction."""
    target = host_isa()
    types = {HALVES: (BF16, BF16), BYTES: (U8, I8)}.get(kind)
    unit = target.tile_unit(*types) if types and target.has_tiles else None
    rates = (tile_operations(unit, target) if unit else None, _vector_operations(kind, target))
    return max((rate for rate in rates if rate is not None), default=None)


def tile_operations(unit: DotUnit, target: Isa) -> float:
    """The same of a unit for tiles, by the kernel that calibration measures it with."""
    # Here, since these tools measure older sources too, which have no tiles.
    from kernelmill.compiler.calibration import TILE_PRODUCTS, tile_kernel

    kernel = tile_kernel(unit)
    linked = link_once(kernel.name, codegen.compile_kernel(kernel, target))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)
    run = function(linked[kernel.name])
    memory = [torch.zeros(64 << 10, dtype=torch.uint8) for _ in range(torch.get_num_threads())]
    # Operands of 8 KiB each, and sums of 4.
    places = [
        (pointer * 3)(*(at + -at % 64 + offset for offset in (0, 16 << 10, 32 << 10)))
        for at in (one.data_ptr() for one in memory)
    ]
    seconds = _best(lambda thread: run(places[thread], None, 0, 1, None))
    products = unit.rows * unit.columns * unit.depth * unit.group
    return 2 * products * TILE_PRODUCTS * torch.get_num_threads() / seconds


def _vector_operations(kind: str, target: Isa) -> float | None:
    made = _multiply_add(kind, target)
    if made is None:
        return None
    instruction, per_lane = made
    lanes = target.vector_bits // 32
    sums = min(_SUMS, target.vector_registers - _OTHERS)
    text = _module(target, _counted(instruction, lanes, kind, sums))
    loop = _loop(text)
    seconds = _best(lambda _: loop(0, 0, _LOOPS))
    return 2 * per_lane * lanes * sums * _LOOPS * torch.get_num_threads() / seconds


def float_operations() -> float:
    """Multiplications and additions of float32 a second, of all threads."""
    rate = peak_operations(FLOATS)
    assert rate is not None
    return rate


def read_rate() -> float:
    """Bytes a second that all threads together read from memory in order."""
    target = host_isa()
    memory = torch.ones(_READ_BYTES, dtype=torch.uint8)
    loop, part = _loop(_module(target, _read(target))), _READ_BYTES // torch.get_num_threads()
    address = memory.data_ptr()
    return _READ_BYTES / _best(lambda n: loop(address + n * part, 0, part // 256))


def copy_seconds(size: int) -> float:
    """The shortest time in which all threads together read so many bytes and write as many."""
    target, part = host_isa(), size // torch.get_num_threads() // 256 * 256
    here, there = (torch.ones(size + 64, dtype=torch.uint8) for _ in range(2))
    source, goal = (t.data_ptr() + -t.data_ptr() % 64 for t in (here, there))
    loops = [_loop(_module(target, _copy(target, past))) for past in (False, True)]
    return min(
        _best(lambda n, loop=loop: loop(source + n * part, goal + n * part, part // 256))
        for loop in loops
    )


def _best(work: Callable[[int], None]) -> float:
    """Seconds of the quickest of several rounds in which every thread does its part, often enough
    that starting them does not count."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:

        def often(thread: int, times: int) -> None:
            for _ in range(times):
                work(thread)

        def once(times: int) -> float:
            start = time.perf_counter()
            list(pool.map(often, range(threads), [times] * threads))
            return (time.perf_counter() - start) / times

        once(1)
        times = max(1, int(_ROUND_SECONDS / once(1)))
        return min(once(times) for _ in range(_ROUNDS))


# ---- the loops ----------------------------------------------------------------------------------


@cache
def _loop(text: str) -> Loop:
    linked = link_once("loop", codegen.emit(text, host_isa()))
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)(linked["loop"])

    def call(source: int, goal: int, count: int) -> None:
        function(source, goal, count)

    call.linked = linked  # type: ignore[attr-defined]  # keeps the code in memory
    return call


def _module(target: Isa, body: list[str]) -> str:
    declarations = sorted({line for line in body if line.startswith("declare")})
    code = [line for line in body if not line.startswith("declare")]
    head = "define void @loop(ptr %from, ptr %to, i64 %count) {"
    return "\n".join([f'target triple = "{target.triple}"', *declarations, head, *code, "}", ""])


def _counted(instruction: str, lanes: int, kind: str, sums: int) -> list[str]:
    """So many turns of one instruction on each of so many sums."""
    zero = "zeroinitializer"
    vector = f"<{lanes} x {'float' if kind != BYTES else 'i32'}>"
    names = [f"%sum{n}" for n in range(sums)]
    phis = [f"{n} = phi {vector} [ {zero}, %entry ], [ {n}.next, %turn ]" for n in names]
    steps = [instruction.format(sum=name, next=f"{name}.next") for name in names]
    declares = [line for line in steps[0].split("\n") if line.startswith("declare")]
    turns = [line for step in steps for line in step.split("\n") if not line.startswith("declare")]
    total = [f"store volatile {vector} {n}.next, ptr %kept" for n in names]
    return [
        *declares,
        "entry:",
        f"%kept = alloca {vector}",
        "br label %turn",
        "turn:",
        "%i = phi i64 [ 0, %entry ], [ %i.next, %turn ]",
        *phis,
        *turns,
        "%i.next = add i64 %i, 1",
        "%more = icmp slt i64 %i.next, %count",
        "br i1 %more, label %turn, label %done",
        "done:",
        *total,
        "ret void",
    ]


def _multiply_add(kind: str, target: Isa) -> tuple[str, int] | None:
    """What gives {next} of {sum} in one instruction (two for floats that have none), and its
    multiply-adds for 32 bits."""
    lanes = target.vector_bits // 32
    floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    one = ", ".join(["float 1.0"] * lanes)
    if kind == FLOATS and target.has_fma:
        name = f"@llvm.fma.v{lanes}f32"
        return (
            f"declare {floats} {name}({floats}, {floats}, {floats})\n"
            f"{{next}} = call {floats} {name}({floats} <{one}>, {floats} <{one}>, {floats} {{sum}})"
        ), 1
    if kind == FLOATS:
        half = ", ".join(["float 0.5"] * lanes)  # a product by one would be left out
        return (
            f"{{next}}.half = fmul {floats} {{sum}}, <{half}>\n"
            f"{{next}} = fadd {floats} {{next}}.half, <{one}>"
        ), 1
    if kind == HALVES and "avx512bf16" in target.features:
        halves = f"<{2 * lanes} x bfloat>"
        name = f"@llvm.x86.avx512bf16.dpbf16ps.{target.vector_bits}"
        return (
            f"declare {floats} {name}({floats}, {halves}, {halves})\n"
            f"{{next}} = call {floats} {name}({floats} {{sum}}, {halves} zeroinitializer, "
            f"{halves} zeroinitializer)"
        ), 2
    if kind == BYTES and "avx512vnni" in target.features:
        name = f"@llvm.x86.avx512.vpdpbusd.{target.vector_bits}"
        return (
            f"declare {words} {name}({words}, {words}, {words})\n"
            f"{{next}} = call {words} {name}({words} {{sum}}, {words} zeroinitializer, "
            f"{words} zeroinitializer)"
        ), 4
    return None


def _read(target: Isa) -> list[str]:
    """Reads 256 bytes a turn."""
    bytes = target.vector_bits // 8
    vector = f"<{bytes // 4} x i32>"
    parts = range(256 // bytes)
    return [
        "entry:",
        f"%kept = alloca {vector}",
        "br label %turn",
        "turn:",
        "%i = phi i64 [ 0, %entry ], [ %i.next, %turn ]",
        *(f"%s{p} = phi {vector} [ zeroinitializer, %entry ], [ %n{p}, %turn ]" for p in parts),
        "%place = mul i64 %i, 256",
        *(line for p in parts for line in (
            f"%o{p} = add i64 %place, {p * bytes}",
            f"%p{p} = getelementptr i8, ptr %from, i64 %o{p}",
            f"%v{p} = load {vector}, ptr %p{p}, align {bytes}",
            f"%n{p} = xor {vector} %s{p}, %v{p}",
        )),
        "%i.next = add i64 %i, 1",
        "%more = icmp slt i64 %i.next, %count",
        "br i1 %more, label %turn, label %done",
        "done:",
        *(f"store volatile {vector} %n{p}, ptr %kept" for p in parts),
        "ret void",
    ]  # fmt: skip


def _copy(target: Isa, nontemporal: bool) -> list[str]:
    """Copies 256 bytes a turn."""
    bytes = target.vector_bits // 8
    vector = f"<{bytes // 4} x i32>"
    parts = range(256 // bytes)
    mark = ", !nontemporal !{i32 1}" if nontemporal else ""
    return [
        "entry:",
        "br label %turn",
        "turn:",
        "%i = phi i64 [ 0, %entry ], [ %i.next, %turn ]",
        "%place = mul i64 %i, 256",
        *(line for p in parts for line in (
            f"%o{p} = add i64 %place, {p * bytes}",
            f"%p{p} = getelementptr i8, ptr %from, i64 %o{p}",
            f"%q{p} = getelementptr i8, ptr %to, i64 %o{p}",
            f"%v{p} = load {vector}, ptr %p{p}, align {bytes}",
            f"store {vector} %v{p}, ptr %q{p}, align {bytes}{mark}",
        )),
        "%i.next = add i64 %i, 1",
        "%more = icmp slt i64 %i.next, %count",
        "br i1 %more, label %turn, label %done",
        "done:",
        "ret void",
    ]  # fmt: skip
