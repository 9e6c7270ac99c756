"""The quick way of a call, for plans that only launch kernels: one native call does it all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Union

import torch

from kernelmill.core.dtype import to_torch
from kernelmill.plan.ir import DimResult, Result, TensorInput, TensorResult
from kernelmill.runtime.admission import PLAIN_TENSORS
from kernelmill.runtime.engine import Engine
from kernelmill.runtime.memory import empty_strided
from kernelmill.runtime.packing import Binding
from kernelmill.runtime.sizes import Sizes

ProgramResult = Union[torch.Tensor, int, None]
Call = Callable[..., list[ProgramResult]]

ReadResult = Callable[[Sequence[Any], tuple[Any, ...], Sizes], ProgramResult]
"""Gives one result from the tensors, arguments and sizes of a call."""


def result_readers(engine: Engine, places: Sequence[int]) -> list[ReadResult]:
    """A reader for each result; the call has the tensor of buffer `places[i]` in place i."""
    return [_result_reader(engine, result, places) for result in engine.plan.results]


def _result_reader(engine: Engine, result: Result, places: Sequence[int]) -> ReadResult:
    if isinstance(result, DimResult):
        number = engine.dims.number(result.value)
        return lambda tensors, args, sizes: sizes.values[number]
    if not isinstance(result, TensorResult):
        return lambda tensors, args, sizes: None
    buffer = engine.plan.buffers[result.buffer]
    if buffer.kind == "input":
        return lambda tensors, args, sizes: args[buffer.source]
    place = places.index(result.buffer)
    return lambda tensors, args, sizes: tensors[place]


def argument_picker(positions: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Gives the arguments at these positions."""
    if not positions:
        return lambda args: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return operator.itemgetter(slice(first, last + 1))
    return operator.itemgetter(*positions)


Look = Callable[[tuple[Any, ...]], Union[tuple[Sizes, Union[Binding, None]], None]]
"""Gives the sizes and the binding for a call's arguments, or None when in doubt about them."""


def quick_look(engine: Engine) -> Look:
    """What Python has to see of arguments before the native entry checks them.

    The entry cannot see lazy negation or that a tensor is of a subclass; it needs the sizes and the
    binding. Versions of updated arguments are counted up here. InputError for a wrong count.
    """
    count = len(engine.plan.inputs)
    pick_checked = argument_picker(_checked_arguments(engine))
    static = None if engine.sources else engine.sizes_of(())
    sources = [(source.argument, source.axis) for source in engine.sources]
    parameters, updated = engine.parameters, engine.updated
    bindings = {} if parameters is None else parameters.bindings
    key_argument = -1 if parameters is None else parameters.key_argument
    known_sizes, plain = engine.sizes, PLAIN_TENSORS

    def look(args: tuple[Any, ...]) -> tuple[Sizes, Binding | None] | None:
        if len(args) != count:
            raise engine.wrong_count(len(args))
        for tensor in pick_checked(args):
            if type(tensor) not in plain or tensor.is_neg():
                return None
        binding = None
        if key_argument >= 0:
            binding = bindings.get(id(args[key_argument]))
            if binding is None:
                return None
        sizes = static
        if sizes is None:
            try:
                key = tuple([args[i] if axis < 0 else args[i].shape[axis] for i, axis in sources])
                sizes = known_sizes.get(key)
            except (AttributeError, IndexError, TypeError):
                return None
            if sizes is None:
                return None
        if updated:
            try:
                engine.update_versions(args)
            except RuntimeError:
                return None
        return sizes, binding

    return look


def _checked_arguments(engine: Engine) -> list[int]:
    """Tensor arguments that kernels may read: opaque ones go to ATen as they are."""
    return [
        i
        for i in engine.tables.tensor_arguments
        if isinstance(entry := engine.plan.inputs[i], TensorInput) and not entry.dtype.is_opaque
    ]


def native_call(engine: Engine) -> Call:
    """The call of a plan whose steps are all launches."""
    plan, tables = engine.plan, engine.tables
    pick = argument_picker(tables.tensor_arguments)
    outputs = [(n, to_torch(plan.buffers[n].dtype)) for n in tables.outputs]
    readers = result_readers(engine, tables.outputs)
    just_outputs = list(plan.results) == [TensorResult(n) for n in tables.outputs]
    look, admit, entry = quick_look(engine), engine.admit, engine.entry_call
    free, new_frame, allocate = engine.free, engine.new_frame, empty_strided

    def call(*args: Any) -> list[ProgramResult]:
        found = look(args)
        careful = found is None
        while True:
            admitted, sizes, binding = admit(args) if careful or found is None else (args, *found)
            try:
                frame = free.pop()
            except IndexError:
                frame = new_frame()
            try:
                if frame.sizes is not sizes:
                    frame.adopt(sizes)
                outs: list[ProgramResult] = [
                    allocate(*sizes.tensors[n], dtype) for n, dtype in outputs
                ]
                bound = 0 if binding is None else binding.address
                code = entry(frame.address, bound, id(args), *pick(admitted), *outs)
            except Exception:
                if careful:
                    raise
                code, outs = -1, []
            finally:
                free.append(frame)
            if code == 0:
                return outs if just_outputs else [read(outs, args, sizes) for read in readers]
            if code > 0:
                raise engine.status_error(code)
            if careful:
                raise engine.refused(code)
            careful = True

    return call
