"""Calibration: figures of core/target/machine.py measured on this processor, and stored.

Measurements run kernels of the kernel IR, so that generated code is measured: a loop of independent
multiply-adds for each dot unit (for tiles with their loads), a loop that reads a buffer of each
cache level's size, and empty launches. Rates are those of one core. The minimum of many short
rounds is taken, against disturbance by other load. Figures are rounded to two digits, so that two
measurements of one machine choose the same schedules.

An entry of type "Machine" holds them as JSON. Its key names the ISA, the caches and the processor's
model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from math import floor, log10
from typing import Any

import torch

from kernelmill import codegen
from kernelmill.codegen import key_of
from kernelmill.core.digest import Key
from kernelmill.core.dtype import BF16, F32, F64, I8, I32, U8, DType
from kernelmill.core.log import get_logger
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.isa import Isa, processor_name
from kernelmill.core.target.machine import (
    LEVELS,
    Level,
    Machine,
    Rates,
    host,
    is_own,
    target_machine,
)
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Buffer, Kernel, Value, VType
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.plan.ir import BufferKind, BufferSpec, KernelRef, Launch, Plan, TensorInput
from kernelmill.runtime.program import Program, load
from kernelmill.store.entry import NewEntry
from kernelmill.store.store import Store

TYPE = "Machine"
_log = get_logger("compiler")

_ROUNDS = 200
_LEAST_ROUNDS = 5
_MEASURE_NS = 150_000_000
"""Limits of a measurement: rounds, and time."""

_SUMS = 16
"""Independent sums: enough for two units of any latency in use."""

_TILES = 2
"""Register block in tiles of rows, and of columns: sums and operands use all registers."""

_TILE_TURNS = 4
"""Turns with different operands, 16 KiB of them altogether."""

TURNS = 2_000
TILE_PRODUCTS = _TILES * _TILES * TURNS
"""Tile multiplications in the kernel that measures them."""

_READ_BYTES = 8 << 20
"""Bytes read in a round, in several passes over smaller buffers."""

_TORCH: Mapping[DType, torch.dtype] = {
    BF16: torch.bfloat16,
    F32: torch.float32,
    F64: torch.float64,
    I8: torch.int8,
    I32: torch.int32,
    U8: torch.uint8,
}
"""The types of the operands and sums of dot units."""

_LAUNCHES = 64
_MEMORY_BYTES = 256 << 20
"""More than one core is likely to keep in a shared cache."""


UNITS: Mapping[str, str] = {
    "operations": "vector operations a nanosecond",
    "dots": "instructions a nanosecond",
    "bytes": "bytes a nanosecond",
    "stream": "bytes a nanosecond, in order",
    "launch_ns": "nanoseconds of a launch",
    "region_ns": "nanoseconds of a parallel region",
}
"""The unit of each of `figures`."""


def machine_for(store: Store, target: str | None = None, measure: bool = False) -> Machine:
    """Return the machine that programs with this `config.target` are compiled for, with its figures
    from the store.

    `measure`: figures missing there are measured now, which takes some seconds. With an ISA named
    by `target` or KERNELMILL_TARGET the built-in ones are used, so that lowering is the same
    everywhere.
    """
    machine = target_machine(target)
    if not is_own(target):
        return machine
    key = calibration_key(machine)
    entry = store.get(key, TYPE)
    if entry is None and measure:
        entry = store.get_or_compile(key, TYPE, lambda: _compiled(calibrate(machine)))
    return machine if entry is None else _with_figures(machine, entry.object)


def recalibrate(store: Store) -> Machine:
    """Measure this machine and keep its figures, replacing earlier ones."""
    machine = calibrate(host())
    keep_figures(store, machine)
    return machine


def keep_figures(store: Store, machine: Machine) -> None:
    """Store the figures of a machine for `machine_for`."""
    store.put(calibration_key(machine), TYPE, _compiled(machine))


def calibration_key(machine: Machine) -> Key:
    """Return the key of a machine's figures."""
    return key_of(machine.isa, machine=machine.caches, processor=processor_name())


def figures(machine: Machine) -> dict[str, Any]:
    """Return the measured figures of a machine, by name, as JSON has them."""
    rates = machine.rates
    return {
        "operations": rates.operations,
        "dots": {unit.name: machine.dot_rate(unit) for unit in _units(machine)},
        "bytes": dict(zip(LEVELS, rates.bytes, strict=True)),
        "stream": rates.stream,
        "launch_ns": machine.launch_ns,
        "region_ns": machine.region_ns,
    }


def _units(machine: Machine) -> tuple[DotUnit, ...]:
    """Return the dot units that the processor has; emulation by vectors has no rate."""
    in_vectors = machine.isa.dot_units + machine.isa.block_units
    return in_vectors + (machine.isa.tile_units if machine.isa.has_tiles else ())


def _compiled(machine: Machine) -> NewEntry:
    text = json.dumps(figures(machine), sort_keys=True)
    return NewEntry(text.encode(), {"op_info": {"Type": TYPE}}, {"kernelName": TYPE})


def _with_figures(machine: Machine, data: bytes) -> Machine:
    """Return the machine with stored figures; unchanged where these are invalid."""
    try:
        found = json.loads(data)
        dots = tuple(sorted((str(name), _positive(rate)) for name, rate in found["dots"].items()))
        l1, l2, shared, memory = (_positive(found["bytes"][level]) for level in LEVELS)
        rates = replace(
            machine.rates,
            operations=_positive(found["operations"]),
            dots=dots,
            bytes=(l1, l2, shared, memory),
            stream=_positive(found["stream"]),
        )
        launch, region = _positive(found["launch_ns"]), _positive(found["region_ns"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("the figures kept of this machine cannot be used: %s", error)
        return machine
    return replace(machine, rates=rates, launch_ns=launch, region_ns=region)


def _positive(value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise ValueError(f"{value!r} is no rate")
    return float(value)


# ---- measuring ----------------------------------------------------------------------------------


def calibrate(machine: Machine) -> Machine:
    """Return the machine with figures measured now, in less than 5 seconds."""
    dots = {unit.name: _dot_rate(machine, unit) for unit in _units(machine)}
    bytes = {level: _read_rate(machine, level) for level in LEVELS}
    serial, region = _launch_ns(machine, 0), _launch_ns(machine, 10**6)
    rates = Rates(
        operations=dots["multiply_add"],
        dots=tuple(sorted(dots.items())),
        bytes=(bytes["l1"], bytes["l2"], bytes["shared"], bytes["memory"]),
        stream=bytes["shared"],
        latency=machine.rates.latency,
    )
    found = replace(
        machine,
        rates=rates,
        launch_ns=_rounded((serial + region) / 2),
        region_ns=_rounded(max(region - serial, serial)),
    )
    _log.info("calibrated %s: %s", processor_name(), figures(found))
    return found


def _rounded(figure: float) -> float:
    """Round a figure to two digits."""
    scale = 10.0 ** (1 - floor(log10(figure)))
    return round(figure * scale) / scale


def _dot_rate(machine: Machine, unit: DotUnit) -> float:
    """Return the instructions that one core executes in a nanosecond."""
    tiles = unit.on_tiles
    kernel = tile_kernel(unit) if tiles else dot_kernel(machine.isa, unit)
    tensors = [
        torch.zeros(_elements(buffer), dtype=_TORCH[buffer.dtype]) for buffer in kernel.buffers
    ]
    count = TILE_PRODUCTS if tiles else _SUMS * TURNS
    return _rounded(count / _measured(machine, kernel, tensors))


def dot_kernel(isa: Isa, unit: DotUnit, sums: int = _SUMS) -> Kernel:
    """Build a kernel of so many sums, to each of which a product is added in every turn."""
    lanes = max(1, isa.vector_bits // unit.sum.bits)
    b = KernelBuilder("calibrate", TYPE, tasks=1)
    out = b.buffer("sums", unit.sum, sums * lanes, "inout")
    kind = VType(unit.sum, lanes)
    start = [b.load(out, n * lanes, unit.sum, lanes) for n in range(sums)]
    words = unit.words(lanes)[0]
    bits = start[0] if unit.group == 1 else b.op("bitcast", start[0], dtype=unit.word, lanes=words)
    with b.loop(0, TURNS, carry=[(kind, value) for value in start]) as loop:
        loop.carry(*(_product(b, unit, bits, value) for value in loop.carried))
    for number, value in enumerate(loop.results):
        b.store(out, number * lanes, value)
    return b.kernel


def tile_kernel(unit: DotUnit) -> Kernel:
    """Build a kernel on `_TILES` tiles of rows by as many of columns: every turn reads all, in the
    order of packed operands in the first cache, and multiplies them."""
    b = KernelBuilder("calibrate", TYPE, tasks=1)
    left = VType(unit.a, unit.depth * unit.group, unit.rows)
    right = VType(unit.b, unit.columns * unit.group, unit.depth)
    kind = VType(unit.sum, unit.columns, unit.rows)
    whole = unit.rows * unit.depth * unit.group
    across = b.buffer("a", unit.a, _TILES * _TILE_TURNS * whole, "in")
    down = b.buffer("b", unit.b, _TILES * _TILE_TURNS * whole, "in")
    out = b.buffer("sums", unit.sum, _TILES**2 * unit.rows * unit.columns, "out")
    zeros = [(kind, b.tile_zero(kind)) for _ in range(_TILES**2)]
    with b.loop(0, TURNS // _TILE_TURNS, carry=zeros) as again:
        carried = [(kind, value) for value in again.carried]
        with b.loop(0, _TILE_TURNS, carry=carried) as loop:
            places = [(loop.index * _TILES + n) * whole for n in range(_TILES)]
            a = [b.tile_load(across, place, left, left.lanes) for place in places]
            c = [b.tile_load(down, place, right, right.lanes) for place in places]
            pairs = [(x, y) for x in a for y in c]
            products = zip(pairs, loop.carried, strict=True)
            loop.carry(*(b.dot(unit, x, y, total) for (x, y), total in products))
        again.carry(*loop.results)
    for number, value in enumerate(again.results):
        b.tile_store(out, number * unit.rows * unit.columns, value, unit.columns)
    return b.kernel


def _product(b: KernelBuilder, unit: DotUnit, operand: Value, total: Value) -> Value:
    if unit.group > 1:
        return b.dot(unit, operand, operand, total)
    return b.op("fma", operand, operand, total)


def _read_rate(machine: Machine, level: Level) -> float:
    """Return the bytes that one core reads in a nanosecond from a buffer that fits the level."""
    sizes: Mapping[Level, int] = {
        "l1": machine.l1_bytes // 2,
        "l2": machine.l2_bytes // 2,
        "shared": machine.l2_bytes * 2,
        "memory": _MEMORY_BYTES,
    }
    lanes, count = machine.isa.lanes(F32), sizes[level] // F32.bytes
    row = 4 * lanes
    count -= count % row
    passes = max(1, _READ_BYTES // (count * F32.bytes))
    b = KernelBuilder("calibrate", TYPE, tasks=1)
    read = b.buffer("read", F32, count, "in")
    out = b.buffer("sums", F32, row, "out")
    kind = VType(F32, lanes)
    zero = b.op("splat", b.op("cast", b.index(0), dtype=F32), lanes=lanes)
    with b.loop(0, passes, carry=[(kind, zero)] * 4) as again:
        with b.loop(0, count, row, carry=[(kind, value) for value in again.carried]) as loop:
            places = [loop.index + n * lanes for n in range(4)]
            found = [b.load(read, place, F32, lanes) for place in places]
            loop.carry(*(b.op("add", a, x) for a, x in zip(loop.carried, found, strict=True)))
        again.carry(*loop.results)
    for number, value in enumerate(again.results):
        b.store(out, number * lanes, value)
    tensors = [torch.zeros(count), torch.zeros(row)]
    return _rounded(passes * count * F32.bytes / _measured(machine, b.kernel, tensors))


def _launch_ns(machine: Machine, work: int) -> float:
    """Return nanoseconds of an empty launch; with much `work` it opens a parallel region."""
    threads = torch.get_num_threads()
    b = KernelBuilder("calibrate", TYPE, tasks=threads)
    out = b.buffer("out", I32, threads, "out")
    b.store(out, b.task, b.op("cast", b.index(0), dtype=I32))
    tensor = torch.zeros(threads, dtype=torch.int32)
    return _measured(machine, b.kernel, [tensor], work, _LAUNCHES) / _LAUNCHES


def _elements(buffer: Buffer) -> int:
    assert isinstance(buffer.elements, int)
    return buffer.elements


def _measured(
    machine: Machine,
    kernel: Kernel,
    tensors: list[torch.Tensor],
    work: int = 10**6,
    launches: int = 1,
) -> float:
    """Return nanoseconds of so many launches: the minimum of many rounds."""
    verify_kernel(kernel, "calibration")
    image = codegen.compile_kernel(kernel, machine.isa)
    program = _program(kernel, image, work, launches)
    program.call(*tensors)
    times: list[int] = []
    end = time.perf_counter_ns() + _MEASURE_NS
    while len(times) < _LEAST_ROUNDS or (len(times) < _ROUNDS and time.perf_counter_ns() < end):
        start = time.perf_counter_ns()
        program.launch_again(1)
        times.append(time.perf_counter_ns() - start)
    return min(times)


def _program(kernel: Kernel, image: bytes, work: int, launches: int) -> Program:
    inputs: list[TensorInput] = []
    buffers: list[BufferSpec] = []
    for number, buffer in enumerate(kernel.buffers):
        shape = (buffer.elements,)
        buffers.append(BufferSpec(BufferKind.INPUT, buffer.dtype, shape, (1,), number))
        updated = buffer.access != "in"
        inputs.append(TensorInput(buffer.name, buffer.dtype, shape, (1,), updated=updated))
    step = Launch(kernel.name, tuple(range(len(buffers))), (), kernel.tasks, kernel.scratch, work)
    plan = Plan(
        "calibrate", (), tuple(inputs), tuple(buffers), (), (step,) * launches, (),
        (KernelRef(kernel.name, kernel.type, kernel.name),),
    )  # fmt: skip
    return load(plan, {kernel.name: image})
