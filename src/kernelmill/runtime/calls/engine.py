"""State that all calls of a loaded plan share: tables, frames, sizes, parameters; the slow path.

Python inspects arguments only as far as the native entry needs; the entry checks all of them. If
either cannot accept one, the *slow path* begins: Python validates each argument and copies it or
refuses it by name, and binds parameters again.

Realigned arguments: copies of misaligned and of lazily negated tensors, for one call. Copies of
updated arguments are copied back. Dtypes that only ATen reads need no alignment, and may be lazily
conjugated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import starmap
from typing import Any, Protocol, Union
from weakref import ref

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import to_torch
from kernelmill.core.errors import InputError, KernelmillError
from kernelmill.plan.ir import AtenCall, Launch, Plan, SymbolInput, TensorInput
from kernelmill.runtime import argument_validation
from kernelmill.runtime.argument_validation import PLAIN_TENSORS, alignment
from kernelmill.runtime.calls.tables import NativeTables
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import ArgumentBits, PlaceRecord, QuickTable, words
from kernelmill.runtime.memory.allocation import empty_strided, is_direct
from kernelmill.runtime.memory.dims import (
    DimsFunction,
    DimTable,
    Output,
    Sizes,
    SizesOf,
    fixed_layout,
    for_prepare,
    output_of,
    symbol_sources,
)
from kernelmill.runtime.memory.frames import Frame, FramePool
from kernelmill.runtime.weights.binding import BoundSet, Prepare
from kernelmill.runtime.weights.contents import scalar_type
from kernelmill.runtime.weights.packing import Packs, Parameters
from kernelmill.torch_internals.dispatch import version_counter
from kernelmill.torch_internals.native import for_checks
from kernelmill.torch_internals.objects import tuple_items
from kernelmill.torch_internals.tensors import impl_at, storage_at


@dataclass(frozen=True)
class RealignedArguments:
    """Arguments of a call with some replaced by copies: `originals` by the id of their copies, and
    in `updated` the (original, copy) pairs to be written back."""

    arguments: tuple[Any, ...]
    originals: Mapping[int, Any]
    updated: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    def finish(self, results: list[Any]) -> list[Any]:
        """Write back updated copies; return the results, copied arguments replaced by originals."""
        for original, copy in self.updated:
            original.detach().copy_(copy)
        return [self.originals.get(id(result), result) for result in results]


def realigned(
    arguments: Sequence[Any],
    among: Collection[int],
    updated: Collection[int] = (),
    by_memory: bool = False,
    suits: Callable[[int, torch.Tensor], bool] | None = None,
) -> RealignedArguments | None:
    """Return the arguments with misaligned tensors (at positions `among`) copied; None if none is,
    or one is not plain memory on the CPU. `by_memory`: operators count in their storages, which are
    copied whole. One that does not `suit` for other reasons has to be copied anyway: it stays."""
    made: list[Any] | None = None
    originals: dict[int, torch.Tensor] = {}
    back: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in among:
        tensor = arguments[number]
        try:
            if type(tensor) not in PLAIN_TENSORS or not _is_misaligned(tensor):
                continue
            if suits is not None and not suits(number, tensor):
                continue
            copy = _whole_copy(tensor) if by_memory else _copy(tensor)
        except RuntimeError:
            return None
        made = list(arguments) if made is None else made
        made[number] = copy
        originals[id(copy)] = tensor
        if number in updated:
            back.append((tensor, copy))
    return None if made is None else RealignedArguments(tuple(made), originals, back)


def _is_misaligned(tensor: torch.Tensor) -> bool:
    """Return whether kernels cannot read its address. RuntimeError for a tensor without memory."""
    wanted = alignment(tensor.dtype)
    if tensor.is_neg():
        return tensor.device.type == "cpu" and not tensor.is_complex()
    return wanted > 1 and tensor.data_ptr() % wanted != 0


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides; expanded dims stay expanded."""
    shape, strides = tensor.shape, tensor.stride()
    once = tensor.detach()
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and size > 1:
            once = once.narrow(dim, 0, 1)
    copy = empty_strided(tuple(once.shape), once.stride(), tensor.dtype)
    copy.copy_(once)
    return copy if once.shape == shape else copy.as_strided(shape, strides)


def _whole_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides and offset over a copy of the whole storage."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    memory = empty_strided((0,), (1,), tensor.dtype).set_(storage, 0, (count,), (1,))
    copy = empty_strided((count,), (1,), tensor.dtype)
    copy.copy_(memory.neg() if tensor.is_neg() else memory)
    return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


Body = Any
"""A function of tensors and integers, or an object that torch runs or reads."""


class Callee(Protocol):
    """A compiled program."""

    @property
    def call(self) -> Callable[..., list[Any]]: ...


@dataclass(frozen=True)
class ProgramBody:
    """A program that a higher-order operator calls."""

    program: Callee


Bodies = Mapping[str, Union[ProgramBody, object]]
"""Programs and other objects passed to operators, by their names in a plan."""

NO_BODIES: Bodies = {}


def given_as(tag: str, name: str, bodies: Bodies) -> Body:
    """Return the body of this name: for a program a function that returns its only result if `tag`
    is "single", else a tuple. KernelmillError if there is none."""
    if name not in bodies:
        raise KernelmillError(f"no program for body {name}")
    found = bodies[name]
    if not isinstance(found, ProgramBody):
        return found
    call = found.program.call
    if tag == "single":
        return lambda *arguments: call(*arguments)[0]
    return lambda *arguments: tuple(call(*arguments))


def invoke_subgraph(body: Body, _: str, *operands: Any) -> Any:
    """Call the body as torch's operator of this name does, without tens of microseconds of
    dispatch."""
    return body(*operands)


def cond(predicate: Any, true: Body, false: Body, operands: Any) -> Any:
    """Call one of two bodies, as torch's operator of this name does."""
    return true(*operands) if predicate else false(*operands)


RELEASE_GIL_NS = 20_000
"""Programs with more work than this release the GIL during their launches."""

_MOST_SIZES = 256
"""Most sets of symbol values whose sizes a program caches."""

_MOST_ATTEMPTS = 1000

Validated = tuple[tuple[Any, ...], Sizes, Union[BoundSet, None]]
"""Arguments that the entry accepts, their sizes, and the binding of the long-lived ones."""

CheckSizes = Callable[[Mapping[str, int]], None]
"""Raises InputError for values of the symbols that a program is wrong for."""


class Engine:
    """The shared state of a plan's calls. `kernels` are addresses by name, in memory that `keep`
    owns; programs of one `pool` share the memory of their calls. `check_sizes` is called with each
    new set of values of the symbols. `packs` stores packed parameters. `drivers` are the objects of
    super kernels by name; `aten_steps` refers to the plan's AtenSteps, in order, which may name
    `bodies`. With `in_order`, an argument whose dims have another order in memory than the plan's
    is not copied."""

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, int],
        dims_function: DimsFunction | None,
        keep: Sequence[object],
        pool: FramePool | None = None,
        check_sizes: CheckSizes | None = None,
        packs: Packs | None = None,
        drivers: Mapping[str, bytes] | None = None,
        in_order: bool = False,
        bodies: Bodies = NO_BODIES,
    ) -> None:
        self.plan, self.bodies = plan, bodies
        self._in_order = in_order
        self.kernels = kernels
        self.drivers = drivers or {}
        self.aten_steps: list[ref[Any]] = []
        self._check_sizes = check_sizes
        self._keep = keep
        self.dims = DimTable(plan, dims_function)
        self.tables = NativeTables(plan, self.dims, kernels)
        self._sizes_of = SizesOf(plan, self.dims, self.tables.address)
        self.sources = symbol_sources(plan)
        self._names = [source.name for source in self.sources]
        self.late = bool(self.dims.late)
        self.sizes: dict[tuple[int, ...], Sizes] = {}
        self.pool = pool or FramePool()
        self.free, self.new_frame = self.pool.free, self.pool.new
        self.copies = 0
        self._increment = version_counter()
        self.updated = tuple(
            i for i, e in enumerate(plan.inputs) if isinstance(e, TensorInput) and e.updated
        )
        native = executor()
        self.works_long = self._works_long()
        targets = [step.target for step in plan.steps if isinstance(step, AtenCall)]
        self._by_memory = any(target.startswith("aten.as_strided") for target in targets)
        self.entry_validate = native.validate[False]
        self.entry_launch = native.launch[self.works_long]
        self._threaded = native.threaded
        self.pool.reserve(self.tables.slots, native.threaded)
        places = {i: self.tables.place(i) for i in self.tables.bound_arguments}
        self.parameters = (
            Parameters(plan, kernels, places, self._validated_parameter, self._preparer, packs)
            if places
            else None
        )

    def _works_long(self) -> bool:
        work = [step.work for step in self.plan.steps if isinstance(step, Launch)]
        return sum(w if isinstance(w, int) else RELEASE_GIL_NS for w in work) >= RELEASE_GIL_NS

    # ---- data of a call ---------------------------------------------------------------------

    def sizes_of(self, arguments: Sequence[Any]) -> Sizes:
        """Return the sizes for these arguments. InputError names one without a valid size."""
        values: dict[str, int] = {}
        for source in self.sources:
            argument = arguments[source.argument]
            if source.axis < 0:
                if not isinstance(argument, int):
                    raise InputError(
                        f"argument number {source.argument}: expected an integer for "
                        f"{source.name}, got {type(argument).__name__}"
                    )
                values[source.name] = argument
            else:
                entry = self.tensor_input(source.argument)
                argument_validation.check_kind(entry, source.argument, argument)
                argument_validation.check_rank(entry, source.argument, argument)
                values[source.name] = argument.shape[source.axis]
        key = tuple(values.values())
        return self.sizes.get(key) or self.new_sizes(key)

    def new_sizes(self, key: tuple[int, ...]) -> Sizes:
        """Return the sizes for values of the symbols in the order of `sources`, cached for later
        calls.

        InputError when one is outside its symbol's range.
        """
        values = dict(zip(self._names, key, strict=True))
        if self._check_sizes is not None:
            self._check_sizes(values)
        found = self._sizes_of(values)
        while len(self.sizes) >= _MOST_SIZES:
            oldest, *_ = self.sizes  # at once: others may add some between `iter` and `next`
            self.sizes.pop(oldest, None)
        self.sizes[key] = found
        return found

    def realigned(self, arguments: Sequence[Any]) -> RealignedArguments | None:
        """Return these arguments with copies of misaligned ones; None if none is misaligned, or
        they have to be validated."""
        if len(arguments) != len(self.plan.inputs):
            return None
        among = self.tables.tensor_arguments
        found = realigned(arguments, among, self.updated, self._by_memory, self._lies_well)
        if found is not None:
            self.copies += len(found.originals)
        return found

    def _lies_well(self, number: int, tensor: torch.Tensor) -> bool:
        """Return whether an argument has the strides that the plan fixes as numbers."""
        wanted = self.tensor_input(number).strides
        return len(wanted) == tensor.dim() and all(
            size < 2 or not isinstance(stride, int) or stride == its
            for size, stride, its in zip(tensor.shape, wanted, tensor.stride(), strict=True)
        )

    def update_versions(self, arguments: Sequence[Any]) -> None:
        """Increment the version counters of updated arguments. RuntimeError for a non-tensor."""
        self._increment([arguments[i] for i in self.updated])

    def output(self, buffer: int, sizes: Sizes) -> Output:
        """Return shape, strides and dtype of a buffer's tensor for these sizes."""
        known = sizes.outputs.get(buffer)
        return known or output_of(self.plan.buffers[buffer], self.dims, sizes.values)

    def wrong_count(self, count: int) -> InputError:
        expected = len(self.plan.inputs)
        return InputError(f"program {self.plan.name} takes {expected} arguments, got {count}")

    def error(self, code: int) -> Exception:
        """Return the exception for a non-zero code of the entry: a status set by a kernel
        (positive), or an argument that another thread keeps changing."""
        if code > 0:
            return IndexError(self.plan.checks[code - 1])
        places = (*self.tables.tensor_arguments, *self.tables.bound_arguments)
        return KernelmillError(
            f"program {self.plan.name}: argument number {places[-1 - code]} changed during the call"
        )

    # ---- the slow path ---------------------------------------------------------------------

    def with_validated(
        self, arguments: tuple[Any, ...], run: Callable[[Validated], tuple[list[Any] | None, int]]
    ) -> list[Any]:
        """Return the results of a call with validated arguments. `run` returns them, or None and
        the entry's code: then another thread has changed an argument, and they are validated again.
        """
        code = 0
        for attempt in range(_MOST_ATTEMPTS):
            found = self.validate(arguments, again=attempt > 0)
            results, code = run(found)
            if results is not None:
                pairs = zip(found[0], arguments, strict=True)
                originals = {id(copy): its for copy, its in pairs if copy is not its}
                return RealignedArguments(found[0], originals).finish(results)
        raise self.error(code)

    def validate(self, arguments: tuple[Any, ...], again: bool = False) -> Validated:
        """Return arguments that the entry accepts, their sizes, and a fresh binding of parameters;
        `again` if the entry has refused the last ones.

        InputError names the argument that cannot be taken. Nothing is written.
        """
        sizes = self.sizes_of(arguments)
        validated = list(arguments)
        for i in self.tables.tensor_arguments:
            validated[i] = self._validated(i, arguments[i], sizes)
            self.copies += validated[i] is not arguments[i]
        for i, entry in enumerate(self.plan.inputs):
            if isinstance(entry, SymbolInput) and sizes.symbols[entry.symbol] != arguments[i]:
                raise InputError(
                    f"argument number {i}: {entry.symbol} is {sizes.symbols[entry.symbol]} "
                    f"elsewhere, got {arguments[i]}"
                )
        for i in self.updated:
            argument_validation.check_kind(self.tensor_input(i), i, arguments[i])
        self.update_versions(arguments)
        parameters = self.parameters
        binding = None if parameters is None else parameters.bind(arguments, again)
        return tuple(validated), sizes, binding

    def tensor_input(self, number: int) -> TensorInput:
        """Return the plan's entry of a tensor argument."""
        entry = self.plan.inputs[number]
        assert isinstance(entry, TensorInput)
        return entry

    def _validated(self, number: int, argument: object, sizes: Sizes) -> torch.Tensor:
        entry = self.tensor_input(number)
        shape, strides = self.dims.layout(entry, sizes.values)
        taken = argument_validation.validated(
            entry, number, argument, shape, strides, self._in_order
        )
        if self._by_memory and isinstance(argument, torch.Tensor):
            argument_validation.check_in_place(entry, number, argument, taken, strides)
        return taken

    def _validated_parameter(self, number: int, argument: object) -> torch.Tensor:
        entry = self.tensor_input(number)
        return argument_validation.validated(
            entry, number, argument, *fixed_layout(entry), self._in_order
        )

    # ---- launches ---------------------------------------------------------------------------

    def launch(self, frame: Frame, first: int, last: int, binding: BoundSet | None) -> int:
        """Run launches `first` up to `last`; return the status that a kernel has set. Pending parts
        of a binding are packed for each launch that reads them."""
        if binding is None or binding.job is None or self.parameters is None:
            return self.entry_launch(frame.address, first, last)
        job, memory = binding.job, binding.memory(binding.job)
        at, status = first, 0
        for launch, number in job.stream.order:
            if not first <= launch < last or number not in binding.pending:
                continue
            if at < launch:
                status = self.entry_launch(frame.address, at, launch)
                at = launch
            component, part = self.parameters.components[number], job.parts.get(number)
            if part is not None:
                for buffer, tensor in zip(component.buffers, part.tensors, strict=True):
                    frame.set_address(buffer, tensor.data_ptr())
                continue
            for buffer in (*component.buffers, *component.passing):
                frame.set_address(buffer, memory + job.stream.offsets[buffer])
            self._launch_prepare(frame, component.launches)
        return self.entry_launch(frame.address, at, last) if at < last else status

    def _launch_prepare(self, frame: Frame, launches: Sequence[int]) -> int:
        # Nothing of it is Python's: other threads can have that meanwhile.
        launch, first, status = executor().launch[True], self.tables.first_prepare, 0
        for number in launches:
            status = launch(frame.address, first + number, first + number + 1)
        return status

    def _preparer(self, threaded: bool) -> Prepare:
        """Return a function that runs prepare launches in its own frame, one caller at a time."""
        frame = Frame(self.tables.slots, threaded and self._threaded)
        frame.adopt(for_prepare(self.plan, self.dims, self.tables.address))

        def prepare(addresses: Mapping[int, int], launches: Sequence[int]) -> None:
            for buffer, address in addresses.items():
                frame.set_address(buffer, address)
            if status := self._launch_prepare(frame, launches):
                raise self.error(status)

        return prepare


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
