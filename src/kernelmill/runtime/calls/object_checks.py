"""Tables by which the native entry checks torch's tensor objects without tvm-ffi."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import torch

from kernelmill.core.dtype import to_torch
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import ArgumentBits, PlaceRecord, QuickTable, words
from kernelmill.runtime.memory.allocation import is_direct
from kernelmill.runtime.memory.sizes import Sizes
from kernelmill.runtime.weights.bound_parameters import scalar_type
from kernelmill.torch_internals.native import for_checks
from kernelmill.torch_internals.objects import tuple_items
from kernelmill.torch_internals.tensors import impl_at, storage_at

REFUSES = -1
"""A word of settings that no call has."""


def supported() -> bool:
    """Return whether the native entry can read Python objects and torch's settings."""
    return (
        tuple_items.works
        and impl_at.works
        and storage_at.works
        and for_checks.works
        and executor().has_quick
        and is_direct  # other tensors might be a mode's, and have no memory
    )


class ObjectChecks:
    """Table of checks on a program's tensor arguments, for programs that pass `can_check`. `own`
    marks those owned by the call; `table` has no steps, so km_quick refuses it. The entry takes
    arguments from a tuple of all that the program has; `address` is the table's."""

    def __init__(self, engine: Engine, own: Sequence[bool]) -> None:
        arguments = engine.tables.tensor_arguments
        dtypes = [to_torch(engine.tensor_input(i).dtype) for i in arguments]
        numbers = [scalar_type(torch.empty(0, dtype=dtype)) for dtype in dtypes]
        written = [(i in engine.updated) * ArgumentBits.WRITTEN for i in arguments]
        bits = [its * ArgumentBits.OWN | other for its, other in zip(own, written, strict=True)]
        self._scalars, self._own = words(numbers), words(bits)
        self._places = (PlaceRecord * len(own))()
        self._sources = words(arguments)
        self.table = QuickTable(
            settings=REFUSES,
            tensor_count=len(arguments),
            sources=ctypes.addressof(self._sources),
            scalars=ctypes.addressof(self._scalars),
            tensor_type=id(torch.Tensor),
            parameter_type=id(torch.nn.Parameter),
            impl_offset=impl_at.require(),
            tuple_items=tuple_items.require(),
            writes=bool(engine.updated),
            own=ctypes.addressof(self._own),
            places=ctypes.addressof(self._places),
            storage_offset=storage_at.require(),
        )
        self.address = ctypes.addressof(self.table)


def can_check(engine: Engine) -> bool:
    """Return whether the native entry can check the tensor arguments of a program."""
    arguments = engine.tables.tensor_arguments
    return supported() and not any(engine.tensor_input(i).dtype.is_opaque for i in arguments)


def output_maker(engine: Engine) -> Callable[[Sizes], list[Any]]:
    """Return a function that allocates the tensors of a call's results."""
    if engine.sources:
        return lambda sizes: list(starmap(sizes.allocate, sizes.outputs.values()))
    sizes = engine.sizes_of(())
    make, outputs = sizes.allocate, tuple(sizes.outputs.values())
    if len(outputs) == 1:
        ((shape, strides, dtype),) = outputs
        return lambda sizes: [make(shape, strides, dtype)]
    if len(outputs) == 2:
        (shape, strides, dtype), (shape2, strides2, dtype2) = outputs
        return lambda sizes: [make(shape, strides, dtype), make(shape2, strides2, dtype2)]
    return lambda sizes: list(starmap(make, outputs))
