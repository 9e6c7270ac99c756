"""Compilation of the steps of a call (steps.py) into one Python function.

A call is tried with the given arguments, then with copies of misaligned ones, and last with each
argument validated in Python. A refused try has written nothing. A program that only has launches is
one step of the native entry; the work of others follows after the entry's checks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Union

from torch import Tensor

from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import BufferKind, DimResult, Result, TensorResult
from kernelmill.runtime.argument_validation import PLAIN_TENSORS
from kernelmill.runtime.calls.aten import AtenStep, Running
from kernelmill.runtime.calls.engine import Engine, ObjectChecks, Validated, can_check, output_maker
from kernelmill.runtime.calls.returned_views import ViewMaker, computed_results
from kernelmill.runtime.calls.steps import (
    CallOperator,
    MakeTensors,
    RunLaunches,
    Work,
    only_launches,
    steps_of,
)
from kernelmill.runtime.executor import executor
from kernelmill.runtime.memory.allocation import result_tensor
from kernelmill.runtime.memory.dims import Sizes, scratch_bytes, size_reader
from kernelmill.runtime.memory.frames import Frame
from kernelmill.torch_internals.dispatch import plain_calls

ProgramResult = Union[Tensor, float, None]
Call = Callable[..., list[ProgramResult]]
Try = Callable[[tuple[Any, ...]], Union[list[ProgramResult], None]]
"""An attempt to run a tuple of arguments; None if they are refused."""

Outcome = tuple[Union[list[ProgramResult], None], int]
"""Results, or None and the code of the native entry's refusal."""


def call_of(engine: Engine) -> Call:
    """Return the function that runs a program."""
    at_once, by_steps = only_launches(engine.plan), cache(partial(_tries_by_steps, engine))
    attempt = _native_try(engine) if at_once else by_steps()[0]

    def call(*args: Any) -> list[ProgramResult]:
        results = attempt(args)
        if results is not None:
            return results
        realigned = engine.realigned(args)
        if realigned is None:
            return engine.with_validated(args, last_try)
        results = attempt(realigned.arguments)
        if results is None:
            results = engine.with_validated(realigned.arguments, last_try)
        return realigned.finish(results)

    def last_try(found: Validated) -> Outcome:
        results = attempt(found[0])
        return (results, 0) if results is not None else by_steps()[1](found)

    # The plan is the trace: neither autograd nor autocast may affect its operators.
    run: Call = call if at_once else plain_calls(call)
    if not engine.plan.views:
        return run
    views = ViewMaker(engine.plan)
    return lambda *args: views.complete(run(*args), args)


# ---- sizes and checks ---------------------------------------------------------------------------


Pick = Callable[[Sequence[Any]], Sequence[Any]]


def argument_picker(positions: Sequence[int]) -> Pick:
    """Return a function that picks the arguments at these positions."""
    if not positions:
        return lambda args: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return operator.itemgetter(slice(first, last + 1))
    return operator.itemgetter(*positions)


def _quick_look(engine: Engine) -> Callable[[tuple[Any, ...]], Validated | None]:
    """Return a lookup of sizes and binding for unvalidated arguments; None if they need it."""
    count, parameters = len(engine.plan.inputs), engine.parameters
    static = None if engine.sources else engine.sizes_of(())
    read, known = size_reader(engine.sources), engine.sizes

    def find_sizes(args: tuple[Any, ...]) -> Sizes | None:
        try:
            key = read(args)
            found = known.get(key)
        except (AttributeError, IndexError, TypeError):
            return None
        if found is None and all(type(value) is int for value in key):
            return engine.new_sizes(key)
        return found

    def look(args: tuple[Any, ...]) -> Validated | None:
        if len(args) != count:
            raise engine.wrong_count(len(args))
        sizes, binding = static or find_sizes(args), None
        if parameters is not None:
            binding = parameters.bindings.get(id(args[parameters.key_argument]))
            if binding is None:
                return None
        return None if sizes is None else (args, sizes, binding)

    return look


Enter = Callable[[Frame, int, tuple[Any, ...], list[Any]], int]
"""Passes arguments to the native entry, with the address of a binding and, for plans of launches
only, the new tensors for it to fill; returns its code."""


def _native_entry(engine: Engine) -> Enter:
    """Return the function that checks arguments and launches. Launches that release the GIL, and
    those of programs that write to arguments, come after the check."""
    launches, launch, updated = only_launches(engine.plan), engine.entry_launch, engine.updated
    count = engine.tables.first_prepare if launches else 0
    if not can_check(engine):
        check = _tensor_check(engine)
    elif launches and not engine.works_long and not updated:
        return _object_check(engine, count)
    else:
        check = _object_check(engine, 0)

    def enter(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        code = check(frame, bound, args, outs)
        if code:
            return code
        if updated:
            engine.update_versions(args)
        return launch(frame.address, 0, count) if launches else 0

    return enter


def _object_check(engine: Engine, count: int) -> Enter:
    """Return an entry that reads tensors from the arguments' tuple, then runs `count` launches."""
    # Which of them are the call's own, and may share memory, Dynamo has seen to.
    checks = ObjectChecks(engine, [False] * len(engine.tables.tensor_arguments))
    objects = executor().objects
    if only_launches(engine.plan):
        return lambda frame, bound, args, outs: objects(
            frame.address, bound, checks.address, id(args), id(outs), count, 0
        )
    return lambda frame, bound, args, outs: objects(
        frame.address, bound, checks.address, id(args), 0, 0, 0
    )


def _tensor_check(engine: Engine) -> Enter:
    """Return an entry that gets each tensor from tvm-ffi; Python checks the rest: that tensors are
    plain, and not lazily negated."""
    tensors, outputs = engine.tables.tensor_arguments, engine.tables.outputs
    # Opaque ones go to ATen as they are.
    checked = [i for i in tensors if not engine.tensor_input(i).dtype.is_opaque]
    pick, pick_checked = argument_picker(tensors), argument_picker(checked)

    def check(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        for tensor in pick_checked(args):
            if type(tensor) not in PLAIN_TENSORS or tensor.is_neg():
                return -1
        for buffer, tensor in zip(outputs, outs, strict=False):
            frame.set_address(buffer, tensor.data_ptr())
        return engine.entry_validate(frame.address, bound, id(args), *pick(args))

    return check


# ---- results ------------------------------------------------------------------------------------


Collect = Callable[[Sequence[Any], Sequence[Any], Sizes], list[Any]]
"""Returns the `computed_results` from the tensors, arguments and sizes of a call."""


def collector(engine: Engine, places: Sequence[int]) -> Collect | None:
    """Return the function that collects results, with the tensor of buffer `places[i]` at index i;
    None if the tensors are the results."""
    results = computed_results(engine.plan)
    if list(results) == [TensorResult(n) for n in places]:
        return None
    found = [r.buffer for r in results if isinstance(r, TensorResult) and r.buffer in places]
    if len(found) == len(results):
        order = [places.index(buffer) for buffer in found]
        return lambda tensors, args, sizes: [tensors[place] for place in order]
    readers = [_result_reader(engine, result, places) for result in results]
    return lambda tensors, args, sizes: [read(tensors, args, sizes) for read in readers]


def _result_reader(
    engine: Engine, result: Result, places: Sequence[int]
) -> Callable[[Sequence[Any], Sequence[Any], Sizes], Any]:
    if isinstance(result, DimResult):
        number, read = engine.dims.number(result.value), NUMBERS.get(result.kind, int)
        return lambda tensors, args, sizes: read(sizes.values[number])
    if not isinstance(result, TensorResult):
        return lambda tensors, args, sizes: None
    buffer = engine.plan.buffers[result.buffer]
    if buffer.kind == BufferKind.INPUT:
        return lambda tensors, args, sizes: args[buffer.source]
    place = places.index(result.buffer)
    return lambda tensors, args, sizes: tensors[place]


# ---- at once ------------------------------------------------------------------------------------


def _native_try(engine: Engine) -> Try:
    """Return the attempt for a plan that consists of launches only."""
    look, make = _quick_look(engine), output_maker(engine)
    enter, collect = _native_entry(engine), collector(engine, engine.tables.outputs)
    free, new_frame = engine.free, engine.new_frame

    def attempt(args: tuple[Any, ...]) -> list[ProgramResult] | None:
        found = look(args)
        if found is None:
            return None
        _, sizes, binding = found
        bound = 0 if binding is None else binding.address
        try:
            frame = free.pop()
        except IndexError:
            frame = new_frame()
        try:
            outs = make(sizes)
            if frame.sizes is not sizes:
                frame.adopt(sizes)
            code = enter(frame, bound, args, outs)
        except Exception:
            # An argument that cannot even be handed over; validation finds out which one.
            code, outs = -1, []
        finally:
            free.append(frame)
        if not code:
            return outs if collect is None else collect(outs, args, sizes)
        if code > 0:
            raise engine.error(code)
        return None

    return attempt


# ---- step by step -------------------------------------------------------------------------------


Act = Callable[[Running, Frame], None]


def _tries_by_steps(engine: Engine) -> tuple[Try, Callable[[Validated], Outcome]]:
    """Return attempts that run step by step once the entry has accepted: one takes arguments
    unchanged, one takes validated arguments."""
    steps = steps_of(engine.plan)
    work = [_act(engine, step) for step in steps if isinstance(step, (RunLaunches, CallOperator))]
    begin = _beginner(engine, [n for s in steps if isinstance(s, MakeTensors) for n in s.buffers])
    pick = argument_picker(engine.tables.tensor_arguments)
    collect = collector(engine, range(len(engine.plan.buffers)))
    look, enter = _quick_look(engine), _native_entry(engine)

    def enter_validated(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        return engine.entry_validate(frame.address, bound, id(args), *pick(args))

    def go_through(running: Running, frame: Frame) -> None:
        for act in work:
            act(running, frame)

    def run(found: Validated, enter: Enter) -> Outcome:
        frame, args, binding = engine.pool.take(), found[0], found[2]
        try:
            running = begin(found, frame)
            try:
                code = enter(frame, 0 if binding is None else binding.address, args, [])
            except Exception:
                if enter is enter_validated:
                    raise
                code = -1  # an argument that cannot even be handed over
            if code:
                return None, code
            if binding is None or not binding.pending:
                go_through(running, frame)
            else:
                with binding.streaming():
                    go_through(running, frame)
            tensors = running.tensors
            return tensors if collect is None else collect(tensors, args, running.sizes), 0
        finally:
            engine.free.append(frame)

    def attempt(args: tuple[Any, ...]) -> list[ProgramResult] | None:
        found = look(args)
        return None if found is None else run(found, enter)[0]

    return attempt, lambda found: run(found, enter_validated)


def _beginner(engine: Engine, made_first: Sequence[int]) -> Callable[[Validated, Frame], Running]:
    """Return the function that prepares a call's tensors and frame."""
    plan, late, count = engine.plan, engine.late, len(engine.plan.buffers)
    inputs = [(n, b.source) for n, b in enumerate(plan.buffers) if b.kind == BufferKind.INPUT]

    def begin(found: Validated, frame: Frame) -> Running:
        arguments, sizes, binding = found
        if late:  # operators will put the sizes that they find into it
            sizes = replace(sizes, values=type(sizes.values).from_buffer_copy(sizes.values))
        tensors: list[Any] = [None] * count
        for buffer, argument in inputs:
            tensors[buffer] = arguments[argument]
        if binding is not None:
            for buffer, tensor in binding.packed.items():
                tensors[buffer] = tensor
        for buffer in made_first:
            tensor = tensors[buffer] = result_tensor(*engine.output(buffer, sizes))
            frame.set_address(buffer, tensor.data_ptr())
        if frame.sizes is not sizes:
            frame.adopt(sizes)  # later calls begin with them, so there has to be memory
        return Running(tensors, sizes, sizes.symbols, binding)

    return begin


def _act(engine: Engine, step: Work) -> Act:
    """Return the function that executes this step of the plan."""
    if isinstance(step, RunLaunches):
        return partial(_launch, engine, step)
    aten, placed = AtenStep(engine, step.call), step.placed

    def act(running: Running, frame: Frame) -> None:
        aten.run(running)
        if aten.binds:
            scratch = scratch_bytes(engine.plan.steps, engine.dims, running.sizes.values)
            running.sizes = replace(running.sizes, scratch_bytes=scratch)
            frame.adopt(running.sizes)
        for buffer in placed:
            tensor = running.tensors[buffer]
            if tensor is not None:
                frame.set_address(buffer, tensor.data_ptr())
        for buffer in step.drops:
            running.tensors[buffer] = None

    return act


def _launch(engine: Engine, step: RunLaunches, running: Running, frame: Frame) -> None:
    for buffer in step.makes:
        tensor = running.tensors[buffer] = result_tensor(*engine.output(buffer, running.sizes))
        frame.set_address(buffer, tensor.data_ptr())
    status = engine.launch(frame, step.first, step.last, running.binding)
    if status:
        raise engine.error(status)
    for buffer in step.drops:
        running.tensors[buffer] = None
