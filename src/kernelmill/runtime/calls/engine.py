"""State that all calls of a loaded plan share: tables, frames, sizes, parameters; the slow path.

A call inspects its arguments just enough for the native entry to accept them; the entry checks all
of them. When it refuses one, or Python has a doubt, the *slow path* begins: each argument is
validated in Python and copied or refused by name, and parameters are bound again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union
from weakref import ref

import torch

from kernelmill.core.errors import InputError, KernelmillError
from kernelmill.plan.ir import AtenCall, Launch, Plan, SymbolInput, TensorInput
from kernelmill.runtime import argument_validation
from kernelmill.runtime.calls.bodies import NO_BODIES, Bodies
from kernelmill.runtime.calls.realign import RealignedArguments, realigned
from kernelmill.runtime.calls.tables import NativeTables
from kernelmill.runtime.executor import executor
from kernelmill.runtime.memory.dims import DimsFunction, DimTable, fixed_layout, symbol_sources
from kernelmill.runtime.memory.frames import Frame, FramePool
from kernelmill.runtime.memory.sizes import Output, Sizes, SizesOf, for_prepare, output_of
from kernelmill.runtime.weights.binding import Binding
from kernelmill.runtime.weights.pack_job import Prepare
from kernelmill.runtime.weights.packing import Packs, Parameters
from kernelmill.torch_internals.dispatch import version_counter

RELEASE_GIL_NS = 20_000
"""Programs with more work than this release the GIL during their launches."""

_MOST_SIZES = 256
"""Most sets of symbol values whose sizes a program caches."""

_MOST_ATTEMPTS = 1000

Validated = tuple[tuple[Any, ...], Sizes, Union[Binding, None]]
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

    def launch(self, frame: Frame, first: int, last: int, binding: Binding | None) -> int:
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
            for place, buffer in enumerate(component.buffers):
                kept = None if part is None else part.tensors[place].data_ptr()
                frame.set_address(buffer, kept or memory + job.stream.offsets[buffer])
            if part is None:
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
