"""The call of a plan with ATen steps: native launches between calls of operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Union

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.plan.ir import AtenCall, BufferKind, Launch, Plan, TensorResult
from kernelmill.plan.literals import buffers_in
from kernelmill.runtime.argument_validation import PLAIN_TENSORS
from kernelmill.runtime.calls.aten import AtenStep, Running
from kernelmill.runtime.calls.engine import Engine, Validated
from kernelmill.runtime.calls.native_calls import (
    Call,
    ProgramResult,
    argument_picker,
    kernel_arguments,
    result_readers,
    sizes_finder,
)  # fmt: skip
from kernelmill.runtime.calls.returned_views import computed_results
from kernelmill.runtime.calls.straight import Straight
from kernelmill.runtime.memory.frames import Frame
from kernelmill.runtime.memory.results import result_tensor
from kernelmill.runtime.memory.sizes import scratch_bytes
from kernelmill.torch_internals.dispatch import plain_calls


@dataclass(frozen=True)
class Segment:
    """Launches `first` up to `last`, one after the other.

    `makes` are tensor buffers that it is the first to touch, and so has to allocate first.
    """

    first: int
    last: int
    makes: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A segment or an operator. `drops` are tensor buffers that nobody needs after it, `placed`
    results of the operator that launches read."""

    action: Union[Segment, AtenStep]
    drops: tuple[int, ...]
    placed: tuple[int, ...] = ()


def stages_of(engine: Engine) -> list[Stage]:
    """The steps of the plan, launches gathered into segments."""
    plan = engine.plan
    groups: list[list[Launch] | AtenCall] = []
    for step in plan.steps:
        if isinstance(step, AtenCall):
            groups.append(step)
        elif groups and isinstance(groups[-1], list):
            groups[-1].append(step)
        else:
            groups.append([step])
    last_use = {
        buffer: number for number, group in enumerate(groups) for buffer in _touched(plan, group)
    }
    kept = {r.buffer for r in computed_results(plan) if isinstance(r, TensorResult)}
    read_natively = {b for step in plan.steps if isinstance(step, Launch) for b in step.buffers}
    stages: list[Stage] = []
    known: set[int] = set()
    launches = 0
    for number, group in enumerate(groups):
        touched = _touched(plan, group)
        placed: list[int] = []
        if isinstance(group, AtenCall):
            action: Union[Segment, AtenStep] = AtenStep(engine, group)
            placed = [b for b in group.results if b in read_natively - {-1}]
        else:
            action = Segment(launches, launches + len(group), tuple(sorted(touched - known)))
            launches += len(group)
        known |= touched
        drops = tuple(sorted(b for b in touched - kept if last_use[b] == number))
        stages.append(Stage(action, drops, tuple(placed)))
    return stages


def _unwritten(plan: Plan) -> list[int]:
    """Buffers that tensors stand for and no step writes: they have no elements."""
    written = {b for launch in plan.prepare for b in launch.buffers}
    for step in plan.steps:
        written.update(step.results if isinstance(step, AtenCall) else step.buffers)
    kinds = (BufferKind.TENSOR, BufferKind.PACKED)
    return [n for n, b in enumerate(plan.buffers) if b.kind in kinds and n not in written]


def _touched(plan: Plan, group: list[Launch] | AtenCall) -> set[int]:
    """Tensor buffers that these steps read or write."""
    if isinstance(group, AtenCall):
        numbers = {*group.results, *buffers_in((group.args, group.kwargs))}
    else:
        numbers = {buffer for launch in group for buffer in launch.buffers}
    return {n for n in numbers if n >= 0 and plan.buffers[n].kind == BufferKind.TENSOR}


def mixed_call(engine: Engine) -> Call:
    """The call of a plan with ATen steps."""
    stages = stages_of(engine)
    readers = result_readers(engine, range(len(engine.plan.buffers)))
    begin = _beginner(engine)

    def run(args: tuple[Any, ...], frame: Frame) -> list[ProgramResult]:
        running, straight = begin(args, frame), None
        if isinstance(running, Straight):
            straight, args = running, running.arguments
            running = begin(args, frame)
            assert not isinstance(running, Straight)
        if running.binding is not None and running.binding.pending:
            with running.binding.streaming():
                go_through(running, frame)
        else:
            go_through(running, frame)
        results = [read(running.tensors, args, running.sizes) for read in readers]
        return results if straight is None else straight.finish(results)

    def go_through(running: Running, frame: Frame) -> None:
        for stage in stages:
            action = stage.action
            if isinstance(action, Segment):
                _launch(engine, action, running, frame)
            else:
                action.run(running)
                if action.binds or stage.placed:
                    _pass_on(engine, action.binds, stage.placed, running, frame)
            for buffer in stage.drops:
                running.tensors[buffer] = None

    # The plan is what was traced: neither autograd nor autocast has a say in it any more.
    run_plainly = plain_calls(run)

    def call(*args: Any) -> list[ProgramResult]:
        frame = engine.pool.take()
        try:
            return run_plainly(args, frame)
        finally:
            engine.free.append(frame)

    return call


def _beginner(engine: Engine) -> Callable[[tuple[Any, ...], Frame], Running | Straight]:
    """Gives the function that checks arguments and puts their addresses into the frame; or that
    gives arguments to begin with instead, when some lie askew."""
    plan = engine.plan
    pick = argument_picker(engine.tables.tensor_arguments)
    inputs = [(n, b.source) for n, b in enumerate(plan.buffers) if b.kind == BufferKind.INPUT]
    unwritten = _unwritten(plan)
    look = _quick_look(engine)
    late, count = engine.late, len(plan.buffers)

    def begin(args: tuple[Any, ...], frame: Frame) -> Running | Straight:
        def enter(validated: Validated) -> int:
            tensors, sizes, binding = validated
            if frame.sizes is not sizes:
                frame.adopt(sizes)
            bound = 0 if binding is None else binding.address
            return engine.entry_validate(frame.address, bound, id(args), *pick(tensors))

        found, code = look(args), -1
        if found is not None:
            try:
                code = enter(found)
            except Exception:
                code = -1  # an argument that cannot even be handed over
        if found is None or code:
            straight = engine.straightened(args)
            if straight is not None:
                return straight
            found, code = engine.on_slow_path(args, enter)
        if code:
            raise engine.error(code)
        validated, sizes, binding = found
        if late:
            # Operators will put the sizes that they find into it.
            sizes = replace(sizes, values=type(sizes.values).from_buffer_copy(sizes.values))
            frame.adopt(sizes)
        tensors: list[torch.Tensor | None] = [None] * count
        for buffer, argument in inputs:
            tensors[buffer] = validated[argument]
        for buffer in unwritten:
            tensors[buffer] = result_tensor(*engine.output(buffer, sizes))
        if binding is not None:
            for buffer, tensor in binding.packed.items():
                tensors[buffer] = tensor
        return Running(tensors, sizes, sizes.symbols, binding)

    return begin


def _quick_look(engine: Engine) -> Callable[[tuple[Any, ...]], Union[Validated, None]]:
    """What `native_call` looks at before the entry checks arguments; None when in doubt."""
    count = len(engine.plan.inputs)
    pick_checked = argument_picker(kernel_arguments(engine))
    static = None if engine.sources else engine.sizes_of(())
    find_sizes = sizes_finder(engine)
    parameters = engine.parameters

    def look(args: tuple[Any, ...]) -> Validated | None:
        if len(args) != count:
            raise engine.wrong_count(len(args))
        for tensor in pick_checked(args):
            if type(tensor) not in PLAIN_TENSORS or tensor.is_neg():
                return None
        sizes, binding = static or find_sizes(args), None
        if parameters is not None:
            binding = parameters.bindings.get(id(args[parameters.key_argument]))
            if binding is None:
                return None
        if sizes is None:
            return None
        if engine.updated:
            with suppress(RuntimeError):
                engine.update_versions(args)
        return args, sizes, binding

    return look


def _launch(engine: Engine, segment: Segment, running: Running, frame: Frame) -> None:
    for buffer in segment.makes:
        tensor = running.tensors[buffer] = result_tensor(*engine.output(buffer, running.sizes))
        frame.set_address(buffer, tensor.data_ptr())
    status = engine.launch(frame, segment.first, segment.last, running.binding)
    if status:
        raise engine.error(status)


def _pass_on(
    engine: Engine, binds: bool, placed: tuple[int, ...], running: Running, frame: Frame
) -> None:
    """Tell launches of sizes and results that an operator gave."""
    if binds:
        sizes = running.sizes
        scratch = scratch_bytes(engine.plan.steps, engine.dims, sizes.values)
        running.sizes = replace(sizes, scratch_bytes=scratch)
        frame.adopt(running.sizes)
    for buffer in placed:
        tensor = running.tensors[buffer]
        if tensor is not None:
            frame.set_address(buffer, tensor.data_ptr())
