"""The quickest way into a program: one native function makes all checks of a call, and launches.

`km_quick` of executor.ll takes the values of a call apart, looks at tensors, long-lived arguments
and at what is watched besides, all without running Python. For that it reads objects where CPython
and torch keep their fields. `supported` tries on objects of its own whether they are there; where
they are not, programs are called as always.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import starmap
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import torch

from kernelmill.core.dtype import to_torch
from kernelmill.plan.ir import Launch, TensorInput, TensorResult
from kernelmill.runtime.allocation import is_direct
from kernelmill.runtime.cells import impl_offset, scalar_type
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import QuickTable, StepRecord, WatchRecord, records, word, words
from kernelmill.runtime.packing import Binding
from kernelmill.runtime.program import Program
from kernelmill.runtime.sizes import Sizes
from kernelmill.runtime.straight import straightened

REFUSED: Any = object()
"""What a quick call gives when something is not as it expects: nothing has been done then."""

STRUCTURE = -3
"""Why `km_quick` refused: the values of a call are built otherwise."""

TENSOR = -4
"""Why it refused: a tensor, a size, or a long-lived argument."""

VERSION, WORD, DICT_ITEM, LIST_ITEM = range(4)
TYPE, IDENTITY, TUPLE, LIST, DICT, INTEGER, WATCHED, FIELD, ATTRIBUTE, ABSENT, EQUAL = range(11)
GIVEN, ARGUMENTS, FIRST_FREE = range(3)
"""Registers: the tuple of a call's values, that of the program's arguments, those that follow."""

Row = tuple[int, Any, Any, int, int]
"""The fields of a WatchRecord, objects as themselves."""

Build = Callable[[list[Any], tuple[Any, ...]], Any]
"""Makes what a call returns from its new tensors and the values that were passed."""

_TYPE_AT, _SIZE_AT, _INNER_AT = 8, 16, 24
_MANAGED_AT, _MANAGED_DICT = -24, 1 << 4
"""Where CPython keeps the __dict__ of objects whose class has this flag (Include/object.h)."""

AUTOCAST, DETERMINISM, GRADIENTS, FUNCTION_MODES, DISPATCH_MODES = (1 << n for n in range(5))
DEFAULT_DTYPE, AUTOCAST_DTYPE, PRECISION, FLOAT_MODE = (
    0xFF << 8,
    0xFF << 16,
    0xFF << 24,
    0xFFFF << 32,
)
"""What the bits of `settings` mean; see @settings of executor.ll."""

_NEVER = -1


def _word(address: int) -> int:
    return word.from_address(address).value


@cache
def supported() -> bool:
    """Whether objects are laid out as km_quick reads them."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:  # t: without the GIL
        return False
    a, b = object(), object()
    pair, listed, named, some = (a, b), [a, b], {"a": a, "b": b}, {a, b}
    samples: tuple[object, ...] = (pair, listed, named)
    return (
        all(_word(id(sample) + _TYPE_AT) == id(type(sample)) for sample in samples)
        and all(_word(id(sample) + _SIZE_AT) == 2 for sample in samples)
        and [_word(id(pair) + _INNER_AT + 8 * n) for n in range(2)] == [id(a), id(b)]
        and [_word(_word(id(listed) + _INNER_AT) + 8 * n) for n in range(2)] == [id(a), id(b)]
        and _word(id(some) + _INNER_AT) == 2
        and impl_offset() > 0
        and storage_offset() > 0
        and executor().has_quick
        and is_direct  # other tensors might be a mode's, and have no memory
    )


@cache
def has_versions() -> bool:
    """Whether a dict has a version that every change of it changes."""

    class Sample:
        pass

    sample, plain = Sample(), {"a": object()}
    seen = [version_of(vars(sample)), version_of(plain)]
    for n in range(3):
        sample.a = object()  # type: ignore[attr-defined]  # as a user's attribute
        seen.append(version_of(vars(sample)))
        setattr(sample, f"b{n}", n)
        seen.append(version_of(vars(sample)))
        plain["a"] = object()
        seen.append(version_of(plain))
        plain[f"b{n}"] = object()
        seen.append(version_of(plain))
        del plain[f"b{n}"]
        seen.append(version_of(plain))
    still = seen[-1] == version_of(plain)
    return still and len(set(seen)) == len(seen)


def version_of(owner: dict[Any, Any]) -> int:
    """The version of a dict, where `has_versions`."""
    return _word(id(owner) + _INNER_AT)


@cache
def storage_offset() -> int:
    """Where a TensorImpl has the address of its storage; 0 when it is not found."""
    samples = (torch.empty(2), torch.nn.Parameter(torch.empty(1)), torch.empty(4)[1:])
    places = [(sample._cdata, sample.untyped_storage()._cdata) for sample in samples]
    offsets = range(8, 64, 8)
    return next((n for n in offsets if all(_word(at + n) == storage for at, storage in places)), 0)


@cache
def resolution_offset() -> int:
    """Where a class has its __mro__, which another takes the place of when its bases change; 0
    when it is not found."""

    class Sample:
        pass

    kinds = (object, int, Sample, torch.Tensor, torch.nn.Module)
    offsets = range(_SIZE_AT, 400, 8)
    found = (n for n in offsets if all(_word(id(k) + n) == id(k.__mro__) for k in kinds))
    return next(found, 0)


@cache
def has_plain_fields() -> bool:
    """Whether a float's and a device's value is its first field."""
    numbers = (0.0, -1.5, 3.25e10)
    devices = [torch.device(name) for name in ("cpu", "meta", "cuda:3")]
    return all(
        ctypes.c_double.from_address(id(number) + _SIZE_AT).value == number for number in numbers
    ) and [_word(id(device) + _SIZE_AT) & DEVICE for device in devices] == [0xFF00, 0xFF0E, 0x0301]


DEVICE = 0xFFFF
"""The bits of a device's field that count: its type and number."""


def field_of(value: object) -> int:
    """The first field of a float or device, where `has_plain_fields`."""
    return _word(id(value) + _SIZE_AT)


def dict_of(owner: MappingProxyType[Any, Any]) -> dict[Any, Any] | None:
    """The dict behind what `vars` gives for a class."""
    (found,) = gc.get_referents(owner)
    return found if isinstance(found, dict) else None


def version_row(owner: dict[Any, Any]) -> Row:
    """Watches everything in a dict, where `has_versions`."""
    return VERSION, owner, None, _INNER_AT, version_of(owner)


def size_row(owner: Any) -> Row:
    """Watches the size of a dict, list or set."""
    return WORD, owner, None, _INNER_AT if isinstance(owner, set) else _SIZE_AT, len(owner)


def order_row(owner: type) -> Row:
    """Watches the classes that a class looks for attributes in, where they can be found."""
    offset = resolution_offset()
    return WORD, owner, None, offset or _TYPE_AT, id(owner.__mro__ if offset else type(owner))


def class_row(owner: object) -> Row:
    """Watches which class an object is of."""
    return WORD, owner, None, _TYPE_AT, id(type(owner))


def space_row(owner: object) -> Row | None:
    """Watches which dict is an object's __dict__; None where that is not found."""
    kind, space = type(owner), id(vars(owner))
    offset = _MANAGED_AT if kind.__flags__ & _MANAGED_DICT else max(kind.__dictoffset__, 0)
    if not offset or _word(id(owner) + offset) != space:
        return None
    return WORD, owner, None, offset, space


def settings() -> int:
    """The settings of torch and of this thread as one word, where `supported`."""
    return executor().settings()


def unmoved(address: int) -> bool:
    """Whether all is as the watch of the table at `address` has it."""
    return bool(executor().unmoved(address))


class NativeWatch:
    """A watch of its own, for programs without a quick way: has anything moved since `watch`?"""

    def __init__(self) -> None:
        self._table = QuickTable(settings=_NEVER)
        self._keep: object = None
        self.rows: Sequence[Row] = ()
        self._watching = False

    def watch(self, rows: Sequence[Row] | None) -> None:
        """Watch these; without any, all is taken for moved."""
        self._watching = rows is not None
        self.rows = rows or ()
        self._keep = _set_watch(self._table, self.rows)

    def unmoved(self) -> bool:
        """Whether nothing of what is watched has moved; False in doubt."""
        return self._watching and unmoved(ctypes.addressof(self._table))


def _set_watch(table: QuickTable, rows: Sequence[Row]) -> object:
    """Let a table have these rows. What it gives is to be kept as long."""
    made = watch_records(rows)
    table.watch, table.watch_count = ctypes.addressof(made), len(rows)
    return rows, made


def watch_records(rows: Sequence[Row]) -> ctypes.Array[Any]:
    """The rows as the native watch reads them; their objects have to be kept."""
    # Thousands: written as words, in a quarter of the time that as many structures take.
    fields = [
        field
        for kind, owner, key, number, expected in rows
        for field in (kind, id(owner), id(key), number, expected)
    ]
    return (WatchRecord * len(rows)).from_buffer(array("q", fields))


class QuickCall:
    """The quick way into one program. Its parts may be replaced between calls by whoever holds
    Python's lock, since km_quick holds it too. `own` says of each tensor argument whether it is the
    call's own: of those no two may share memory if the program writes to some."""

    def __init__(self, program: Program, own: Sequence[bool]) -> None:
        self._program = program
        engine = program.engine
        tensors = [engine.plan.inputs[i] for i in engine.tables.tensor_arguments]
        dtypes = [to_torch(entry.dtype) for entry in tensors if isinstance(entry, TensorInput)]
        self._scalars = words([scalar_type(torch.empty(0, dtype=dtype)) for dtype in dtypes])
        self._own, self._storages = words(own), words([0] * len(own))
        self._table = QuickTable(
            settings=_NEVER,
            tensor_count=len(tensors),
            scalars=ctypes.addressof(self._scalars),
            tensor_type=id(torch.Tensor),
            parameter_type=id(torch.nn.Parameter),
            impl_offset=impl_offset(),
            own=ctypes.addressof(self._own) if engine.updated else 0,
            storages=ctypes.addressof(self._storages),
            storage_offset=storage_offset(),
        )
        self.address = ctypes.addressof(self._table)
        self.binding: Binding | None = None
        self.refusal = STRUCTURE
        self._bound: tuple[int, Binding | None] = 0, None
        self._watch: object = None
        self._steps: list[object] = []
        self._arguments: tuple[Any, ...] = ()

    def set_watch(self, rows: Sequence[Row]) -> None:
        """What has to be the same outside of the arguments. The objects are kept."""
        self._watch = _set_watch(self._table, rows)

    def set_steps(
        self, steps: Sequence[StepRecord], registers: int, sources: Sequence[int], keep: object
    ) -> None:
        """How values are taken apart, and the register of each tensor argument."""
        table, places = records(StepRecord, steps), words(sources)
        self._table.steps, self._table.step_count = ctypes.addressof(table), len(steps)
        self._table.sources = ctypes.addressof(places)
        self._table.register_count = registers
        self._steps = [table, places, keep]

    def open(self, arguments: tuple[Any, ...], binding: Binding | None) -> None:
        """Take calls, under torch's settings as they are now, without gradients; not under modes,
        which the word of settings does not tell apart. `arguments` are the program's, as far as
        they are not the call's own (None there)."""
        self._table.arguments = id(arguments)
        address = 0 if binding is None else binding.address
        self._table.binding = address
        # A call keeps what it found: the memory it reads lives as long.
        self._arguments, self.binding, self._bound = arguments, binding, (address, binding)
        now = settings()
        if not now & (FUNCTION_MODES | DISPATCH_MODES):
            self._table.settings = now & ~GRADIENTS

    def close(self) -> None:
        """Refuse all calls."""
        self._table.settings = _NEVER

    @property
    def closed(self) -> bool:
        """Whether all calls are refused."""
        return self._table.settings == _NEVER

    def caller(self, build: Build) -> Callable[[tuple[Any, ...]], Any]:
        """The function to call with a tuple of values: what `build` makes of the results and
        values, or REFUSED. IndexError as the program raises it."""
        engine = self._program.engine
        order = _order(self._program)
        if order != list(range(len(engine.tables.outputs))):
            build = _reordered(build, order)
        if engine.works_long or engine.updated:
            return self._in_steps(build)
        return self._at_once(build)

    def _at_once(self, build: Build) -> Callable[[tuple[Any, ...]], Any]:
        """`caller` for little work: one native call checks and launches."""
        engine, make = self._program.engine, _maker(self._program)
        quick, free, address = executor().quick, engine.free, self.address
        count = engine.tables.first_prepare

        def call(values: tuple[Any, ...], given: tuple[Any, ...] | None = None) -> Any:
            try:
                frame = free.pop()
            except IndexError:
                return REFUSED
            try:
                if (sizes := frame.sizes) is None:
                    return REFUSED
                outs = make(sizes)
                bound, _kept = self._bound
                code = quick(frame.address, bound, address, id(values), id(outs), count, 0)
            finally:
                free.append(frame)
            if code:
                return self._refused(code, values, call)
            return build(outs, given or values)

        return call

    def _in_steps(self, build: Build) -> Callable[[tuple[Any, ...]], Any]:
        """`caller` for launches that let other Python threads run, or that write to arguments: the
        launches come after the check, and the call holds its tensors meanwhile."""
        engine, make = self._program.engine, _maker(self._program)
        quick, launch, free = executor().quick, engine.entry_launch, engine.free
        address = self.address
        count, held_count = engine.tables.first_prepare, len(engine.tables.tensor_arguments)
        pick = _updated(self._program)

        def call(values: tuple[Any, ...], given: tuple[Any, ...] | None = None) -> Any:
            try:
                frame = free.pop()
            except IndexError:
                return REFUSED
            try:
                if (sizes := frame.sizes) is None:
                    return REFUSED
                outs = make(sizes)
                bound, _kept = self._bound
                held = [None] * held_count  # gets tensors, which others could drop meanwhile
                code = quick(frame.address, bound, address, id(values), id(outs), 0, id(held))
                if not code:
                    if pick is not None:
                        _increment_version(pick(held))
                    code = launch(frame.address, 0, count)
            finally:
                free.append(frame)
            if code:
                return self._refused(code, values, call)
            return build(outs, given or values)

        return call

    def _refused(
        self, code: int, values: tuple[Any, ...], call: Callable[[tuple[Any, ...], Any], Any]
    ) -> Any:
        engine = self._program.engine
        if code > 0:
            raise engine.error(code)
        # What is written to would have to be looked at for shared memory first.
        straight = None
        if code == TENSOR and not engine.updated:
            straight = straightened(values, range(len(values)))
        if straight is None:
            self.refusal = code
            return REFUSED
        engine.copies += len(straight.askew)
        return call(straight.arguments, values)


def _maker(program: Program) -> Callable[[Sizes], list[Any]]:
    """Makes the tensors of a call's results."""
    engine = program.engine
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


_increment_version: Any = torch._C._increment_version


def _updated(program: Program) -> Callable[[Sequence[Any]], Any] | None:
    """Picks the arguments that are written to among the tensor arguments."""
    places = program.engine.tables.tensor_arguments
    updated = [places.index(n) for n in program.engine.updated]
    if len(updated) == 1:
        return lambda held: (held[updated[0]],)
    return itemgetter(*updated) if updated else None


def _order(program: Program) -> list[int]:
    """The place of each result among the tensors that a call makes."""
    results = [r.buffer for r in program.plan.results if isinstance(r, TensorResult)]
    return [program.engine.tables.outputs.index(buffer) for buffer in results]


def _reordered(build: Build, order: Sequence[int]) -> Build:
    return lambda made, values: build([made[place] for place in order], values)


def suits(program: Program) -> bool:
    """Whether a program can be called quickly: launches alone, results that are all new tensors,
    and what it writes to is looked at in each call."""
    engine = program.engine
    plan, tables = engine.plan, engine.tables
    return (
        supported()
        and all(isinstance(step, Launch) for step in plan.steps)
        and set(engine.updated) <= set(tables.tensor_arguments)
        and not engine.late
        and all(isinstance(r, TensorResult) and r.buffer in tables.outputs for r in plan.results)
        and all(isinstance(e, TensorInput) and not e.dtype.is_opaque for e in _tensors(program))
    )


def _tensors(program: Program) -> list[Any]:
    return [program.plan.inputs[i] for i in program.engine.tables.tensor_arguments]
