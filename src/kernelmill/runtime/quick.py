"""The fast path into a program: one native function makes all checks of a call, and launches.

`km_quick` (native/executor.c) unpacks the values of a call and checks tensors, long-lived arguments
and watched objects, all without running Python. It reads fields of objects of CPython and torch at
known offsets (torch_internals/objects.py); where an offset is unknown, the usual path is taken.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import BufferKind, DimResult, TensorResult
from kernelmill.runtime.calls.caller import Collect, argument_picker, collector
from kernelmill.runtime.calls.changes import ChangeLog, change_log
from kernelmill.runtime.calls.engine import (
    REFUSES,
    Engine,
    ObjectChecks,
    can_check,
    output_maker,
    realigned,
)
from kernelmill.runtime.calls.returned_views import ViewMaker, views_arguments
from kernelmill.runtime.calls.steps import only_launches
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import (
    QuickTable,
    Refusal,
    SettingBits,
    StepRecord,
    SymbolRecord,
    WatchKind,
    WatchRecord,
    records,
    word,
    words,
)  # fmt: skip
from kernelmill.runtime.memory.dims import Sizes
from kernelmill.runtime.memory.frames import Frame
from kernelmill.runtime.program import Program
from kernelmill.runtime.weights.binding import BoundSet
from kernelmill.runtime.weights.contents import memory_behind
from kernelmill.runtime.weights.page_scan import Range, meeting, merged
from kernelmill.torch_internals.dispatch import version_counter
from kernelmill.torch_internals.objects import INNER_AT, dict_version, word_in

REFUSED: Any = object()
"""The result of a fast call that is refused: nothing has been done then."""

GIVEN, ARGUMENTS, FIRST_FREE = range(3)
"""Registers: the tuple of a call's values, that of the program's arguments, those that follow."""

Row = tuple[int, Any, Any, int, int]
"""The fields of a WatchRecord, objects as themselves."""

Build = Callable[[list[Any], tuple[Any, ...]], Any]
"""Builds a call's result from its new tensors and the values that were passed."""


def version_row(owner: dict[Any, Any]) -> Row:
    """Return a row that watches all items of a dict, where dicts have versions."""
    return WatchKind.VERSION, owner, None, INNER_AT, dict_version.require()(owner)


def count_row(log: ChangeLog, told: Collection[int]) -> Row:
    """Return a row that watches by a log of changes, from now on: objects with these ids, which the
    log watches. It has to be the first row."""
    owner, offset = log.place
    return WatchKind.WORD, owner, frozenset(told), offset, log.count


def word_row(owner: object, offset: int | None, expected: int) -> Row | None:
    """Return a row that watches the word at an offset in an object; None where the offset is not
    known, or the word is not the expected one."""
    if not offset or word_in(owner, offset) != expected:
        return None
    return WatchKind.WORD, owner, None, offset, expected


def settings() -> int:
    """Return the settings of torch and of this thread as one word, where `supported`."""
    return executor().settings()


class NativeWatch:
    """Watched objects, checked natively. The watch is that of a table, or one of its own."""

    def __init__(self, table: QuickTable | None = None) -> None:
        self._table = QuickTable(settings=REFUSES) if table is None else table
        self.address = ctypes.addressof(self._table)
        self._watching = False
        self._watched: tuple[Sequence[Row], Any] = (), watch_records(())

    def watch(self, rows: Sequence[Row] | None) -> None:
        """Watch these rows; None means that guards never hold."""
        found = rows or ()
        made = watch_records(found)
        self._table.watch, self._table.watch_count = ctypes.addressof(made), len(made)
        # The old records live until the table has new ones.
        self._watching, self._watched = rows is not None, (found, made)

    @property
    def rows(self) -> Sequence[Row]:
        """The watched rows."""
        return self._watched[0]

    def guards_hold(self) -> bool:
        """Return whether nothing watched has changed; False in doubt."""
        if not self._watching:
            return False
        look = executor().guards_hold
        return bool(look(self.address) or (self._catch_up() and look(self.address)))

    def _catch_up(self) -> bool:
        """Return whether all changes since the last check are of objects that the rows do not
        watch, as those of other programs; the expected count is then updated."""
        log, (rows, made) = change_log(), self._watched
        if log is None or not rows or rows[0][1] is not log.place[0]:
            return False
        record, now = made[0], log.count
        others = log.since(record.expected)
        if others is None or not others or not others.isdisjoint(rows[0][2]):
            return False
        record.expected = now
        return True


def watch_records(rows: Sequence[Row]) -> ctypes.Array[Any]:
    """Return the rows as native records; the caller has to keep their objects alive."""
    # Thousands: written as words, in a quarter of the time that as many structures take.
    fields = [
        field
        for kind, owner, key, number, expected in rows
        for field in (kind, id(owner), id(key), number, expected)
    ]
    return (WatchRecord * len(rows)).from_buffer(array("q", fields))


def _memory(tensor: torch.Tensor) -> Range:
    return memory_behind(tensor.untyped_storage())


class CallEffects(Protocol):
    """The changes that calls make to the objects that they are passed."""

    changed: Sequence[int]
    """A number for each object that is changed."""

    def are_apart(self, owners: Sequence[Any]) -> bool:
        """Return whether these objects may be changed; called before anything is written."""
        ...

    def apply(self, owners: Sequence[Any], made: Any) -> Any:
        """Apply the changes, from the result of the call's `Build`; return the call's result."""
        ...


@dataclass(frozen=True)
class Unpacking:
    """Steps that unpack the values of a call, and the registers of what they find: each tensor
    argument (`sources`), values of symbols (none if a call lacks some), objects that the call will
    change (`changed`), and `others` that are read. `keep` has the tables of the steps."""

    steps: Sequence[StepRecord]
    registers: int
    sources: Sequence[int]
    symbols: Sequence[SymbolRecord] = ()
    changed: Sequence[int] = ()
    others: Sequence[int] = ()
    keep: object = None


class QuickCall(NativeWatch):
    """The fast path into one program. Its parts may be replaced between calls by whoever holds the
    GIL, since km_quick holds it too. `own` marks the tensor arguments that are the call's own: none
    of those may require a gradient while gradients are on, and no two may share memory if the
    program writes to some. Sizes are assumed to be those of the last call; while they differ each
    time they are read first."""

    def __init__(self, program: Program, own: Sequence[bool]) -> None:
        self._program = program
        self._sizes_change = False
        self._symbols: type[ctypes.Array[ctypes.c_int64]] = word * 0
        self._read_symbols = executor().symbols
        self._checks = ObjectChecks(program.engine, own)
        super().__init__(self._checks.table)
        self.binding: BoundSet | None = None
        self.refusal: int = Refusal.STRUCTURE
        self._bound: tuple[int, BoundSet | None] = 0, None
        self._unpacking: object = None
        self._arguments: tuple[Any, ...] = ()
        tensors, updated = program.engine.tables.tensor_arguments, program.engine.updated
        numbers = list(enumerate(zip(tensors, own, strict=True)))
        self._written = [place for place, (n, its) in numbers if its and n in updated]
        held = [place for place, (n, its) in numbers if not its and n not in updated]
        self._held = held if self._written else []
        self._outside: list[Range] = []
        self._apart: tuple[Sizes | None, tuple[int, ...]] = None, ()

    def set_steps(self, unpacking: Unpacking) -> None:
        """Replace the steps that unpack values."""
        tables = (
            records(StepRecord, unpacking.steps),
            words(unpacking.sources),
            records(SymbolRecord, unpacking.symbols),
            words((*unpacking.changed, *unpacking.others)),
        )
        steps, sources, symbols, inner = map(ctypes.addressof, tables)
        table = self._table
        table.steps, table.step_count = steps, len(unpacking.steps)
        table.register_count, table.sources = unpacking.registers, sources
        table.symbols, table.symbol_count = symbols, len(unpacking.symbols)
        table.inner, table.inner_count = inner, len(tables[3])
        table.changed_count = len(unpacking.changed)
        self._symbols = word * len(unpacking.symbols)
        self._unpacking = unpacking, tables

    def open(self, arguments: tuple[Any, ...], binding: BoundSet | None) -> None:
        """Accept calls, under torch's current settings; not under modes, which the word of settings
        does not tell apart. `arguments` are the program's, None in place of the call's own."""
        self._table.arguments = id(arguments)
        address = 0 if binding is None else binding.address
        self._table.binding = address
        # A call keeps the binding it found, and so the memory that it reads.
        self._arguments, self.binding, self._bound = arguments, binding, (address, binding)
        self._outside, self._apart = [], (None, ())
        if self._written:
            # These stay where they are, or the binding is another.
            bound = [arguments[n] for n in self._program.engine.tables.bound_arguments]
            self._outside = [_memory(t) for t in bound if isinstance(t, torch.Tensor)]
        now = settings()
        if not now & (SettingBits.FUNCTION_MODES | SettingBits.DISPATCH_MODES):
            self._table.settings = now & ~SettingBits.GRADIENTS

    def close(self) -> None:
        """Refuse all calls."""
        self._table.settings = REFUSES

    @property
    def closed(self) -> bool:
        """True if all calls are refused."""
        return self._table.settings == REFUSES

    def caller(
        self, build: Build, effects: CallEffects | None = None
    ) -> Callable[[tuple[Any, ...]], Any]:
        """Return a function of the tuple of values: it returns the result of `build` on the
        results and values, or REFUSED; `effects` are applied to that. IndexError as the program
        raises it. One native call checks and launches little work. Launches that release the
        GIL, or of calls that change their arguments, come after the check; the call holds its
        arguments meanwhile."""
        engine = self._program.engine
        make, collect = output_maker(engine), _collector(engine)
        quick, free, address = executor().quick, engine.free, self.address
        apart = engine.works_long or bool(engine.updated) or effects is not None
        tensors = len(engine.tables.tensor_arguments)
        held_count = tensors + (0 if effects is None else len(effects.changed))
        count, launch = engine.tables.first_prepare, self._launcher(effects)

        def call(values: tuple[Any, ...], given: tuple[Any, ...] | None = None) -> Any:
            try:
                frame = free.pop()
            except IndexError:
                return REFUSED
            held: list[Any] = []
            try:
                sizes = self._find_sizes(values) if self._sizes_change else frame.sizes
                if sizes is None:
                    return REFUSED
                outs = make(sizes)
                if self._sizes_change:
                    self._resize(frame, sizes)
                bound, _kept = self._bound
                if apart:
                    held = [None] * held_count  # gets objects, which others could drop meanwhile
                    code = quick(frame.address, bound, address, id(values), id(outs), 0, id(held))
                    code = code or launch(frame, held, sizes)
                else:
                    code = quick(frame.address, bound, address, id(values), id(outs), count, 0)
            finally:
                free.append(frame)
            if code:
                return self._refused(code, values, given, call, sizes)
            made = build(outs if collect is None else collect(outs, (), sizes), given or values)
            return made if effects is None else effects.apply(held[tensors:], made)

        return call

    def _launcher(
        self, effects: CallEffects | None
    ) -> Callable[[Frame, Sequence[Any], Sizes], int]:
        """Run the launches of a call that holds its arguments; return their status, or that of a
        refusal."""
        engine, increment = self._program.engine, version_counter()
        count, tensors = engine.tables.first_prepare, len(engine.tables.tensor_arguments)
        pick = argument_picker([engine.tables.tensor_arguments.index(n) for n in engine.updated])

        def launch(frame: Frame, held: Sequence[Any], sizes: Sizes) -> int:
            if effects is not None and not effects.are_apart(held[tensors:]):
                return Refusal.TENSOR
            if self._written and not self._are_outside_apart(held, sizes):
                return Refusal.TENSOR
            if engine.updated:
                increment(pick(held))
            return engine.entry_launch(frame.address, 0, count)

        return launch

    def _are_outside_apart(self, held: Sequence[Any], sizes: Sizes) -> bool:
        """Return whether the call's own tensors that the program writes to share no memory with
        tensors bound outside the call. Writes to the latter are km_quick's to check."""
        places = tuple([held[n].data_ptr() for n in (*self._written, *self._held)])
        last, known = self._apart
        if places == known and sizes is last:
            return True
        outside = merged([*self._outside, *[_memory(held[n]) for n in self._held]])
        if any(meeting(outside, _memory(held[n])) for n in self._written):
            return False
        self._apart = sizes, places
        return True

    def _resize(self, frame: Frame, sizes: Sizes) -> None:
        """Prepare the frame for sizes that were read. There has to be memory for results of these
        sizes: later calls begin with them."""
        if sizes is frame.sizes:
            self._sizes_change = False
        else:
            frame.adopt(sizes)

    def _find_sizes(self, values: tuple[Any, ...]) -> Sizes | None:
        """Return the sizes for a call's values; None if invalid, or not read from values."""
        symbols, engine = self._symbols(), self._program.engine
        if not symbols or self._read_symbols(self.address, id(values), ctypes.addressof(symbols)):
            return None
        key = tuple(symbols)
        try:
            return engine.sizes.get(key) or engine.new_sizes(key)
        except InputError:
            return None

    def _refused(
        self,
        code: int,
        values: tuple[Any, ...],
        given: tuple[Any, ...] | None,
        call: Callable[[tuple[Any, ...], Any], Any],
        sizes: Sizes,
    ) -> Any:
        engine = self._program.engine
        if code > 0:
            raise engine.error(code)
        if code == Refusal.WATCH and self._catch_up():
            return call(values, given)
        if code == Refusal.TENSOR and not self._sizes_change:
            found = self._find_sizes(values)
            if found is not None and found is not sizes:
                # Looked at before the native call from now on, until a call has those of the last.
                self._sizes_change = True
                return call(values, given)
        # Written arguments would have to be checked for shared memory first.
        found = None
        if code == Refusal.TENSOR and not engine.updated:
            found = realigned(values, range(len(values)))
        if found is None:
            self.refusal = code
            return REFUSED
        engine.copies += len(found.originals)
        return call(found.arguments, values)


def _collector(engine: Engine) -> Collect | None:
    """Return the function that collects results; None if the new tensors are the results."""
    collect = collector(engine, engine.tables.outputs)
    if not engine.plan.views:
        return collect
    views = ViewMaker(engine.plan)

    def with_views(tensors: Sequence[Any], args: Sequence[Any], sizes: Sizes) -> list[Any]:
        found = list(tensors) if collect is None else collect(tensors, args, sizes)
        return views.complete(found, args)

    return with_views


def suits(program: Program) -> bool:
    """Return whether a program has a fast path: launches only, results that are all new tensors,
    views of these or numbers, and all written arguments checked in each call."""
    engine = program.engine
    plan, tables = engine.plan, engine.tables
    kinds = (BufferKind.TENSOR, BufferKind.VIEW)
    return (
        can_check(engine)
        and only_launches(plan)
        and set(engine.updated) <= set(tables.tensor_arguments)
        and not engine.late
        and all(
            plan.buffers[r.buffer].kind in kinds
            if isinstance(r, TensorResult)
            else isinstance(r, DimResult)
            for r in plan.results
        )
        and not views_arguments(plan)
    )
