"""A loaded plan that can be called."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Mapping
from typing import Any

from kernelmill.config.compiler_config import CheckWeights
from kernelmill.core import knobs
from kernelmill.core.digest import sha256
from kernelmill.core.elf import code_around
from kernelmill.core.errors import KernelmillError
from kernelmill.plan.ir import AtenCall, Launch, Plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime import probes
from kernelmill.runtime.calls.caller import Call, ProgramResult, call_of
from kernelmill.runtime.calls.engine import NO_BODIES, Bodies, CheckSizes, Engine
from kernelmill.runtime.counters import Count, summed
from kernelmill.runtime.executor import executor, give_executor
from kernelmill.runtime.linking import linker
from kernelmill.runtime.memory.dims import DimsFunction
from kernelmill.runtime.memory.frames import FramePool
from kernelmill.runtime.weights.packing import COUNTS, PackPlace, Packs

DIMS_OBJECT = "dims"
"""Name in `objects` of the function that computes `dims_needed(plan)`, and of its symbol."""


class Program:
    """A loaded plan, ready for calls from several Python threads at once.

    `call(*args)` is the same as calling the program, without one Python frame. `engine` is shared
    by its calls; it lives as long as the program can be called.
    """

    def __init__(self, engine: Engine, call: Call) -> None:
        self.plan = engine.plan
        self.call = call
        self.engine = engine

    def __call__(self, *args: Any) -> list[ProgramResult]:
        """Run the program with the plan's arguments: tensors, and an int for each SymbolInput.

        InputError names an argument that does not fit; nothing has been written then. IndexError
        when a kernel found an index out of range.
        """
        return self.call(*args)

    def launch_again(self, times: int) -> None:
        """Run all launches `times` times on the arguments and results of the last call, which must
        still be alive: a measurement without the call's overhead. For programs of launches only,
        called by one thread."""
        (frame,) = self.engine.pool.frames
        executor().repeat[True](frame.address, times)

    def check_weights(self, check: CheckWeights) -> None:
        """Set how writes to packed weights are detected: see `CompilerConfig.check_weights`."""
        if self.engine.parameters is not None:
            self.engine.parameters.check_weights(check)

    def pack_at_once(self) -> None:
        """Have the first call pack all weights for good: where it has waited for the compile."""
        if self.engine.parameters is not None:
            self.engine.parameters.streams = False

    def report(self) -> dict[str, int]:
        """Return counters and sizes in bytes: `arena_bytes` and `packed_bytes` are those in use by
        all calls together. `streamed` calls had weights packed launch by launch, and `packing` are
        parts that a thread has yet to pack (runtime/weights/streaming.py). `weights_watched`,
        `weights_compared` and `weights_sampled` count packed weights by how writes are detected: by
        pages, by all contents, by pieces (weights/contents.py). `held_up` counts calls that went on
        with one thread less, because one did not run."""
        return summed(self.counts())

    def counts(self) -> Generator[Count]:
        """Yield the numbers of `report`, each with its owner, which other programs may share."""
        engine, pool, steps = self.engine, self.engine.pool, self.plan.steps
        # A super kernel is one launch.
        fused = sum(s.last - s.first - 1 for s in self.plan.supers)
        yield "launches", engine, sum(isinstance(step, Launch) for step in steps) - fused
        yield "super_kernels", engine, len(self.plan.supers)
        yield "aten_calls", engine, sum(isinstance(step, AtenCall) for step in steps)
        yield "arena_bytes", pool, sum(frame.arena_bytes for frame in pool.frames)
        yield "calls", pool, pool.calls
        yield "held_up", pool, sum(frame.held_up for frame in pool.frames)
        yield "copies", engine, engine.copies
        for name in ("packed_bytes", "repacks", "streamed", "packing", *COUNTS):
            yield name, None, 0  # also where there are no parameters
        if engine.parameters is not None:
            yield from engine.parameters.counts()


def load(
    plan: Plan,
    objects: Mapping[str, bytes],
    pool: FramePool | None = None,
    check_sizes: CheckSizes | None = None,
    place: PackPlace | None = None,
    verified: bool = False,
    in_order: bool = False,
    bodies: Bodies = NO_BODIES,
) -> Program:
    """Load a plan and return its program. `objects` are ELF images by kernel name.

    A dynamic plan may have one more object, "dims": `void dims(const i64* symbols, i64* out)`
    computes `dims_needed(plan)` from the values of `plan.symbols`. Without it Python does. Programs
    of one `pool` share the memory of their calls. `check_sizes` raises InputError for values of the
    symbols that the program is wrong for. `place` stores packed parameters beyond this process.
    With `in_order`, arguments whose dims have another order in memory than the plan's are refused,
    not copied. The executor's object may be among the objects too (`executor_object`). `bodies` are
    those of the plan's higher-order operators, by name. A `verified` plan is not verified again.

    VerificationError when the plan breaks its rules, CodegenError when an object does not link,
    KernelmillError when an object or a body is missing, or this torch lacks an operator.
    """
    if not verified:
        verify_plan(plan)
    give_executor(objects)
    keep: list[linker.LinkedObject] = []
    kernels: dict[str, int] = {}
    drivers: dict[str, bytes] = {}
    for kernel in plan.kernels:
        if kernel.name not in objects:
            raise KernelmillError(f"plan {plan.name}: no object for kernel {kernel.name}")
        linked = linker.link_once(kernel.name, objects[kernel.name])
        kernels[kernel.name] = linked[kernel.name]
        keep.append(linked)
        _name(kernel.name, kernel.title, linked, objects)
    for super_kernel in plan.supers:
        if super_kernel.name not in objects:
            raise KernelmillError(f"plan {plan.name}: no object for {super_kernel.name}")
        drivers[super_kernel.name] = objects[super_kernel.name]
        linked = linker.link([super_kernel.name], objects[super_kernel.name], kernels)
        kernels[super_kernel.name] = linked[super_kernel.name]
        keep.append(linked)
        _name(super_kernel.name, super_kernel.name, linked, objects)
    dims_function: DimsFunction | None = None
    if DIMS_OBJECT in objects:
        linked = linker.link([DIMS_OBJECT], objects[DIMS_OBJECT])
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        dims_function = prototype(linked[DIMS_OBJECT])
        keep.append(linked)
    packs: Packs | None = None
    if place is not None:
        packs = Packs(place, {kernel.name: sha256(objects[kernel.name]) for kernel in plan.kernels})
    engine = Engine(
        plan, kernels, dims_function, keep, pool, check_sizes, packs, drivers, in_order, bodies
    )
    call = call_of(engine)
    probes.show(engine)
    return Program(engine, call)


def _name(name: str, title: str, linked: linker.LinkedObject, objects: Mapping[str, bytes]) -> None:
    if knobs.PERF_MAP.get():
        before, size = code_around(objects[name], name)
        linker.name(linked[name] - before, size, title)
