"""The quick way of a call, for plans that only launch kernels: one native call does it all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Union

from torch import Tensor

from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import BufferKind, DimResult, Result, TensorResult
from kernelmill.runtime.argument_validation import PLAIN_TENSORS
from kernelmill.runtime.calls.engine import Engine, Validated
from kernelmill.runtime.calls.object_checks import ObjectChecks, can_check, output_maker
from kernelmill.runtime.calls.returned_views import computed_results
from kernelmill.runtime.executor import executor
from kernelmill.runtime.memory.frames import Frame
from kernelmill.runtime.memory.sizes import Sizes
from kernelmill.runtime.weights.binding import Binding

ProgramResult = Union[Tensor, float, None]
Call = Callable[..., list[ProgramResult]]

ReadResult = Callable[[Sequence[Any], tuple[Any, ...], Sizes], ProgramResult]
"""Gives one result from the tensors, arguments and sizes of a call."""


def result_readers(engine: Engine, places: Sequence[int]) -> list[ReadResult]:
    """A reader for each of the `computed_results`; the call has the tensor of buffer `places[i]`
    in place i."""
    return [_result_reader(engine, result, places) for result in computed_results(engine.plan)]


def _result_reader(engine: Engine, result: Result, places: Sequence[int]) -> ReadResult:
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


Pick = Callable[[Sequence[Any]], Sequence[Any]]


def argument_picker(positions: Sequence[int]) -> Pick:
    """Gives the arguments at these positions."""
    if not positions:
        return lambda args: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return operator.itemgetter(slice(first, last + 1))
    return operator.itemgetter(*positions)


Find = Callable[[tuple[Any, ...]], Union[Sizes, None]]


def sizes_finder(engine: Engine) -> Find:
    """Gives the sizes that a call's arguments mean; None when the arguments are odd."""
    sources = [(source.argument, source.axis) for source in engine.sources]
    known = engine.sizes

    def find(args: tuple[Any, ...]) -> Sizes | None:
        try:
            key = tuple([args[i] if axis < 0 else args[i].shape[axis] for i, axis in sources])
            found = known.get(key)
        except (AttributeError, IndexError, TypeError):
            return None
        if found is None and all(type(value) is int for value in key):
            return engine.new_sizes(key)
        return found

    return find


def kernel_arguments(engine: Engine) -> list[int]:
    """Tensor arguments that kernels may read: opaque ones go to ATen as they are."""
    arguments = engine.tables.tensor_arguments
    return [i for i in arguments if not engine.tensor_input(i).dtype.is_opaque]


Finish = Callable[[int, list[Any], tuple[Any, ...], Sizes], list[ProgramResult]]


def native_call(engine: Engine) -> Call:
    """The call of a plan whose steps are all launches."""
    pick, finish = argument_picker(engine.tables.tensor_arguments), _finisher(engine)
    quickly, slow = _quick_call(engine, pick, finish), _slow_call(engine, pick, finish)

    def call(*args: Any) -> list[ProgramResult]:
        results = quickly(args)
        if results is not None:
            return results
        straight = engine.straightened(args)
        if straight is None:
            return slow(args)
        args = straight.arguments
        results = quickly(args)
        return straight.finish(slow(args) if results is None else results)

    return call


Enter = Callable[[Frame, int, tuple[Any, ...], list[Any]], int]
"""Hands arguments and outputs to the native entry, and the address of a binding; gives its code."""


def _object_entry(engine: Engine) -> Enter:
    """The entry takes the tensors from the tuple of arguments."""
    # Which of them are the call's own, and may share memory, Dynamo has seen to.
    checks = ObjectChecks(engine, [False] * len(engine.tables.tensor_arguments))
    objects, launch = executor().objects, engine.entry_launch
    count, updated = engine.tables.first_prepare, engine.updated

    def at_once(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        return objects(frame.address, bound, checks.address, id(args), id(outs), count, 0)

    def in_steps(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        code = objects(frame.address, bound, checks.address, id(args), id(outs), 0, 0)
        if code:
            return code
        if updated:
            engine.update_versions(args)
        return launch(frame.address, 0, count)

    return in_steps if engine.works_long or updated else at_once


def _tensor_entry(engine: Engine, pick: Pick) -> Enter:
    """The entry gets each tensor from tvm-ffi. Before that Python has to see to what it cannot
    look at: that tensors are plain and not lazily negated."""
    pick_checked, entry = argument_picker(kernel_arguments(engine)), engine.entry_call
    updated = engine.updated

    def enter(frame: Frame, bound: int, args: tuple[Any, ...], outs: list[Any]) -> int:
        for tensor in pick_checked(args):
            if type(tensor) not in PLAIN_TENSORS or tensor.is_neg():
                return -1
        if updated:
            engine.update_versions(args)
        return entry(frame.address, bound, id(args), *pick(args), *outs)

    return enter


def _quick_call(
    engine: Engine, pick: Pick, finish: Finish
) -> Callable[[tuple[Any, ...]], list[ProgramResult] | None]:
    """The call as far as nothing is odd; None, and nothing is written, when something is."""
    plan, tables = engine.plan, engine.tables
    count = len(plan.inputs)
    static = None if engine.sources else engine.sizes_of(())
    find_sizes, make = sizes_finder(engine), output_maker(engine)
    parameters = engine.parameters
    bindings = {} if parameters is None else parameters.bindings
    key_argument = -1 if parameters is None else parameters.key_argument
    enter = _object_entry(engine) if can_check(engine) else _tensor_entry(engine, pick)
    free, new_frame = engine.free, engine.new_frame
    just_outputs = list(computed_results(plan)) == [TensorResult(n) for n in tables.outputs]

    def quickly(args: tuple[Any, ...]) -> list[ProgramResult] | None:
        if len(args) != count:
            raise engine.wrong_count(len(args))
        sizes = find_sizes(args) if static is None else static
        if sizes is None:
            return None
        bound = 0
        if key_argument >= 0:
            binding = bindings.get(id(args[key_argument]))
            if binding is None:
                return None
            bound = binding.address
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
            # An argument that cannot even be handed over; the slow path finds out which one.
            code, outs = -1, []
        finally:
            free.append(frame)
        if code < 0:
            return None
        if code or not just_outputs:
            return finish(code, outs, args, sizes)
        return outs

    return quickly


def _finisher(engine: Engine) -> Finish:
    """Makes the results of a call from the entry's code and the outputs, or raises."""
    readers = result_readers(engine, engine.tables.outputs)

    def finish(
        code: int, outs: list[Any], args: tuple[Any, ...], sizes: Sizes
    ) -> list[ProgramResult]:
        if code:
            raise engine.error(code)
        return [read(outs, args, sizes) for read in readers]

    return finish


def _slow_call(engine: Engine, pick: Pick, finish: Finish) -> Callable[[tuple[Any, ...]], Any]:
    """The call after the quick way has met with something it does not know."""

    def slow(args: tuple[Any, ...]) -> list[ProgramResult]:
        frame = engine.pool.take()
        outs: list[Any] = []

        def enter(validated: Validated) -> int:
            tensors, sizes, binding = validated
            outs[:] = starmap(sizes.allocate, sizes.outputs.values())
            frame.adopt(sizes)  # later calls begin with them, so there has to be memory
            bound = 0 if binding is None else binding.address
            if binding is None or not binding.pending:
                return engine.entry_call(frame.address, bound, id(args), *pick(tensors), *outs)
            code = engine.entry_validate(frame.address, bound, id(args), *pick(tensors))
            return code or stream(binding)

        def stream(binding: Binding) -> int:
            for buffer, tensor in zip(engine.tables.outputs, outs, strict=True):
                frame.set_address(buffer, tensor.data_ptr())
            with binding.streaming():
                return engine.launch(frame, 0, engine.tables.first_prepare, binding)

        try:
            (_, sizes, _), code = engine.on_slow_path(args, enter)
        finally:
            engine.free.append(frame)
        return finish(code, outs, args, sizes)

    return slow
