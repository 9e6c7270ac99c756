"""Tables of one plan that the native executor walks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.target.machine import host
from kernelmill.plan.ir import LINES_BUFFER, BufferKind, Launch, Plan, TensorInput, whole_launch
from kernelmill.runtime.layout import (
    ArenaRecord,
    InputRecord,
    LaunchOrder,
    LaunchRecord,
    Table,
    records,
    words,
)  # fmt: skip
from kernelmill.runtime.memory.dims import DimTable

_DLPACK_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_DLPACK_CODES = {
    "bf16": 4, "c32": 5, "c64": 5, "c128": 5, "u16": 1, "u32": 1, "u64": 1,
    "f8e4m3fn": 10, "f8e4m3fnuz": 11, "f8e5m2": 12, "f8e5m2fnuz": 13, "f8e8m0fnu": 14,
}  # fmt: skip
"""DLDataTypeCode of dtypes whose kind does not determine it (dlpack.h 1.1)."""


def dlpack_dtype(dtype: DType) -> int:
    """Return the 32 bits of a DLDataType: code, bits, one lane."""
    code = _DLPACK_CODES.get(dtype.name)
    code = _DLPACK_KINDS[dtype.kind] if code is None else code
    return code | dtype.bits << 8 | 1 << 16


class NativeTables:
    """The native tables of a plan; `address` stays valid as long as this object lives.

    `tensor_arguments` are the arguments that go to the entry as tensors, in this order, and
    `bound_arguments` the long-lived ones that a binding holds. `outputs` are buffers whose tensors
    follow the arguments. The launches of `plan.prepare` come behind those of `plan.steps`, from
    number `first_prepare` on. `launch_records` are the records of all launches, in this order;
    `supers` has the launches of super kernels' drivers by the number of their first launch.
    """

    def __init__(self, plan: Plan, dims: DimTable, kernels: Mapping[str, int]) -> None:
        self._dims = dims
        self._keep: list[Any] = []
        tensors = [(i, e) for i, e in enumerate(plan.inputs) if isinstance(e, TensorInput)]
        self.bound_arguments = tuple(i for i, entry in tensors if is_bound(entry))
        self.tensor_arguments = tuple(i for i, entry in tensors if not is_bound(entry))
        self.outputs = tuple(i for i, b in enumerate(plan.buffers) if b.kind == BufferKind.TENSOR)
        # One more for arguments that no step reads; -1 is the status word and stays itself.
        self.slots = len(plan.buffers) + 1
        self._argument_places = _argument_places(plan)
        self._places = {-1: -1, LINES_BUFFER: LINES_BUFFER}
        for i, buffer in enumerate(plan.buffers):
            shared = buffer.kind == BufferKind.INPUT
            self._places[i] = self._argument_places[buffer.source] if shared else i
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        self.first_prepare = len(launches)
        launches += plan.prepare
        self.supers = _supers_by_launch(plan)
        arena = [i for i, buffer in enumerate(plan.buffers) if buffer.kind == BufferKind.ARENA]
        self.launch_records = records(LaunchRecord, self._with_supers(plan, launches, kernels))
        table = Table(
            input_count=len(self.tensor_arguments),
            inputs=self._records(
                InputRecord, [self._input(i, entry) for i, entry in tensors if not is_bound(entry)]
            ),
            output_count=len(self.outputs),
            outputs=self._words(self.outputs),
            arena_count=len(arena),
            arena=self._records(
                ArenaRecord,
                [ArenaRecord(i, dims.number(plan.buffers[i].offset)) for i in arena],
            ),
            launch_count=self.first_prepare,
            launches=self._kept(self.launch_records),
            widest_launch=max(
                (len(launch.buffers) for launch in (*launches, *self.supers.values())), default=0
            ),
            most_dims=max((len(launch.dims) for launch in launches), default=0),
            threshold=host().region_work_ns,
        )
        self._keep.append(table)
        self.address = ctypes.addressof(table)

    def place(self, argument: int) -> int:
        """Return the frame slot that holds the address of an argument."""
        return self._argument_places.get(argument, self.slots - 1)

    def _input(self, argument: int, entry: TensorInput) -> InputRecord:
        return InputRecord(
            buffer=self.place(argument),
            rank=len(entry.shape),
            dtype=dlpack_dtype(entry.dtype),
            misaligned=0 if entry.dtype.is_opaque else entry.dtype.bytes - 1,
            dims=self._numbers((*entry.shape, *entry.strides)),
        )

    def _launch(self, launch: Launch, kernels: Mapping[str, int]) -> LaunchRecord:
        return LaunchRecord(
            kernel=kernels[launch.kernel],
            buffer_count=len(launch.buffers),
            buffers=self._words([self._places[buffer] for buffer in launch.buffers]),
            dim_count=len(launch.dims),
            dims=self._numbers(launch.dims),
            tasks=self._dims.number(launch.tasks),
            work=self._dims.number(launch.work),
            span=1,
            super=0,
            order=LaunchOrder[launch.order.name],
        )

    def _with_supers(
        self, plan: Plan, launches: Sequence[Launch], kernels: Mapping[str, int]
    ) -> list[LaunchRecord]:
        """Return a record for each launch; the first of a super kernel stands for all of it."""
        found: list[LaunchRecord] = []
        spans = {s.name: s.last - s.first for s in plan.supers}
        for number, launch in enumerate(launches):
            whole = self.supers.get(number)
            record = self._launch(launch if whole is None else whole, kernels)
            if whole is not None:
                record.span, record.super = spans[whole.kernel], 1
            found.append(record)
        return found

    def _numbers(self, dims: Sequence[Dim]) -> int:
        return self._words(self._dims.numbers(dims))

    def _words(self, numbers: Sequence[int]) -> int:
        return self._kept(words(numbers))

    def _records(self, kind: type[ctypes.Structure], rows: Sequence[ctypes.Structure]) -> int:
        return self._kept(records(kind, rows))

    def _kept(self, array: ctypes.Array[Any]) -> int:
        self._keep.append(array)
        return ctypes.addressof(array)


def _supers_by_launch(plan: Plan) -> dict[int, Launch]:
    """Return the launches of super kernels' drivers, by the number of their first launch."""
    found: dict[int, Launch] = {}
    for super_kernel in plan.supers:
        before = plan.steps[: super_kernel.first]
        number = sum(isinstance(step, Launch) for step in before)
        found[number] = whole_launch(plan, super_kernel)
    return found


def is_bound(entry: TensorInput) -> bool:
    """Return whether an argument is long-lived and has a fixed layout, so that it can be bound."""
    if entry.role == InputRole.USER:
        return False
    return all(isinstance(d, int) for d in (*entry.shape, *entry.strides))


def _argument_places(plan: Plan) -> dict[int, int]:
    """Return the first buffer of each argument, whose address all views of it share."""
    places: dict[int, int] = {}
    for i, buffer in enumerate(plan.buffers):
        if buffer.kind == BufferKind.INPUT:
            places.setdefault(buffer.source, i)
    return places
