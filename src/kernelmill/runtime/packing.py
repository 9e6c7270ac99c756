"""Long-lived arguments (parameters): bound once, checked natively at each call, packed when read.

A *cell* is what the native entry knows of one: the Python object, its TensorImpl, where its data
is, its layout and its version. As long as nothing of that changes a call touches no parameter from
Python. When something changes, a new binding takes the place of the old one, and only those packed
buffers are made again that (through other packed buffers, even) come from a changed argument.

What is packed is shared by all programs of the process that pack a parameter alike (the gears of
a model, its prefill and its decode step): each looks for what another one has made.

Sets of parameters are told apart by the identity of one of them, so that a program which is called
for every layer of a model keeps a binding for each. Bindings hold their parameters weakly.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from kernelmill.core.digest import DIGEST_BYTES
from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.plan.ir import Plan
from kernelmill.runtime import linker
from kernelmill.runtime.large_pages import Layout, Shelf
from kernelmill.runtime.layout import (
    BindingTable,
    CellRecord,
    PackedRecord,
    records,
    words,
)  # fmt: skip
from kernelmill.runtime.samples import Sample, take_sample


@dataclass(frozen=True)
class Component:
    """Prepare launches that share packed buffers, and so have to run together, in order.

    `launches` are numbers in `plan.prepare`; `sources` the arguments they read.
    """

    launches: tuple[int, ...]
    buffers: tuple[int, ...]
    sources: frozenset[int]


def components(plan: Plan) -> tuple[Component, ...]:
    """The prepare launches, split into parts that have no packed buffer in common."""
    parts: list[tuple[set[int], set[int]]] = []  # (launches, packed buffers)
    for number, launch in enumerate(plan.prepare):
        launches = {number}
        buffers = {b for b in launch.buffers if b >= 0 and plan.buffers[b].kind == "packed"}
        for part in [part for part in parts if part[1] & buffers]:
            parts.remove(part)
            launches |= part[0]
            buffers |= part[1]
        parts.append((launches, buffers))
    return tuple(
        Component(tuple(sorted(launches)), tuple(sorted(buffers)), _sources(plan, launches))
        for launches, buffers in parts
    )


def _sources(plan: Plan, launches: set[int]) -> frozenset[int]:
    return frozenset(
        plan.buffers[buffer].source
        for launch in launches
        for buffer in plan.prepare[launch].buffers
        if buffer >= 0 and plan.buffers[buffer].kind == "input"
    )


@dataclass(eq=False)
class PackedPart:
    """The packed buffers of one component, in the order of `Component.buffers`."""

    tensors: tuple[torch.Tensor, ...]


_parts: weakref.WeakValueDictionary[Hashable, PackedPart] = weakref.WeakValueDictionary()
"""What the bindings of this process hold, by how it was packed and from what."""


def recipe(plan: Plan, component: Component, kernels: Mapping[str, Hashable]) -> Hashable:
    """How a component packs, the same for two programs when they pack alike: kernels, sizes and
    buffers of its launches. Sources and packed buffers count by their order."""
    order = {buffer: ("packed", place) for place, buffer in enumerate(component.buffers)}

    def described(buffer: int) -> Hashable:
        if buffer < 0:
            return buffer
        spec = plan.buffers[buffer]
        place = order.get(buffer) or ("source", sorted(component.sources).index(spec.source))
        return (*place, spec.dtype, spec.shape, spec.strides)

    launches = [plan.prepare[number] for number in component.launches]
    return tuple(
        (kernels[step.kernel], step.dims, step.tasks, tuple(map(described, step.buffers)))
        for step in launches
    )


class PackPlace(Protocol):
    """Where packed buffers outlive the process that packed them.

    `recipe` says how they are packed, the same in every process; `sources` are what they are packed
    from, in order. What is handed out is never written to.
    """

    def find(self, recipe: str, sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor] | None:
        """The contents of the buffers, as bytes; None when they are not there."""
        ...

    def keep(
        self, recipe: str, sources: Sequence[torch.Tensor], packed: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor] | None:
        """Keep them, and hand out what `find` will; None when that cannot be done."""
        ...


@dataclass(frozen=True)
class Packs:
    """A place for packed buffers. `identities` tell kernels apart in every process, by name."""

    place: PackPlace
    identities: Mapping[str, str]


def lasting_recipe(plan: Plan, component: Component, identities: Mapping[str, str]) -> str:
    """`recipe` as a digest that is the same in every process."""
    text = str(recipe(plan, component, identities))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


@dataclass(frozen=True)
class CellState:
    """What a parameter was like when it was bound. `version` is None where torch counts none."""

    impl: int
    data: int
    version: int | None
    dtype: int
    layout: tuple[int, ...]
    sample: Sample


@dataclass
class Cell:
    """A bound parameter. `copy` is what kernels read when that has other strides."""

    argument: int
    reference: weakref.ref[torch.Tensor]
    state: CellState
    copy: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """What kernels read. It is there while a call has the parameter."""
        tensor = self.copy if self.copy is not None else self.reference()
        assert tensor is not None
        return tensor

    @property
    def address(self) -> int:
        return self.state.data if self.copy is None else self.copy.data_ptr()


@dataclass(eq=False)
class Binding:
    """A set of parameters ready for calls; never changes. `address` is its native table.

    `lasting` is False when a parameter has no version counter (it was made in inference mode) and
    is copied or packed: changes would go unseen, so such a binding serves one call only.
    """

    cells: Mapping[int, Cell]
    parts: tuple[PackedPart, ...]
    packed: Mapping[int, torch.Tensor]
    lasting: bool
    address: int = 0
    keep: list[Any] = field(default_factory=list[Any])

    @property
    def packed_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.packed.values())


def read_state(tensor: torch.Tensor) -> CellState:
    """The state of a parameter now."""
    version = None if tensor.is_inference() else tensor._version
    layout = (*tensor.shape, *tensor.stride())
    sample = take_sample(tensor)
    return CellState(tensor._cdata, tensor.data_ptr(), version, scalar_type(tensor), layout, sample)


def scalar_type(tensor: torch.Tensor) -> int:
    """The number that torch's C shims give for the dtype."""
    handle, number = ctypes.c_void_p(tensor._cdata), ctypes.c_int32()
    linker.torch_library().aoti_torch_get_dtype(ctypes.byref(handle), ctypes.byref(number))
    return number.value


class Parameters:
    """The long-lived arguments of a program, and their bindings.

    `admit(argument number, value)` gives the tensor that kernels may read for an argument, itself
    or a copy, or raises InputError. `prepare(addresses, launches)` runs prepare launches with
    buffers at these addresses.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, int],
        places: Mapping[int, int],
        admit: Callable[[int, object], torch.Tensor],
        prepare: Callable[[Mapping[int, int], Sequence[int]], None],
        packs: Packs | None = None,
    ) -> None:
        self._plan, self._places, self._admit, self._prepare = plan, places, admit, prepare
        self._components = components(plan)
        self._recipes = [recipe(plan, part, kernels) for part in self._components]
        self._place = None if packs is None else packs.place
        self._lasting = [
            "" if packs is None else lasting_recipe(plan, part, packs.identities)
            for part in self._components
        ]
        packed_from = frozenset[int]().union(*(part.sources for part in self._components))
        self._read_by_packing = packed_from
        # A weight says best which layer this is: what is packed is seldom shared between layers.
        self.key_argument = min(packed_from or places)
        self.bindings: dict[int, Binding] = {}
        self._passing: dict[int, Binding] = {}
        self._lock = threading.Lock()
        self.repacks = 0
        self.copies = 0

    def bind(self, arguments: Sequence[object]) -> Binding:
        """A binding for these arguments as they are now. InputError names one that cannot be."""
        with self._lock:
            key = id(arguments[self.key_argument])
            known = self.bindings.get(key) or self._passing.get(key)
            old = known.cells if known is not None else {}
            cells = {i: self._cell(i, arguments[i], old.get(i), key) for i in self._places}
            parts = self._pack(cells, known)
            packed = {
                buffer: tensor
                for component, part in zip(self._components, parts, strict=True)
                for buffer, tensor in zip(component.buffers, part.tensors, strict=True)
            }
            lasting = all(c.state.version is not None for c in cells.values() if self._watched(c))
            binding = Binding(cells, parts, packed, lasting)
            self._write_table(binding)
            self._forget(key)
            (self.bindings if lasting else self._passing)[key] = binding
            return binding

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed buffers that coming calls may use."""
        return sum(b.packed_bytes for b in (*self.bindings.values(), *self._passing.values()))

    def _forget(self, key: int) -> None:
        self.bindings.pop(key, None)
        self._passing.pop(key, None)

    def _watched(self, cell: Cell) -> bool:
        """Whether kernels read something made from this argument, which its changes make stale."""
        return cell.copy is not None or cell.argument in self._read_by_packing

    def _cell(self, number: int, argument: object, old: Cell | None, key: int) -> Cell:
        if old is not None and isinstance(argument, torch.Tensor) and old.reference() is argument:
            state = read_state(argument)
            if state == old.state and (state.version is not None or not self._watched(old)):
                return old
        fitting = self._admit(number, argument)
        assert isinstance(argument, torch.Tensor)
        copy = None if fitting is argument else fitting
        self.copies += copy is not None
        reference = weakref.ref(argument, _Forgetter(self, key))
        return Cell(number, reference, read_state(argument), copy)

    def _pack(self, cells: Mapping[int, Cell], known: Binding | None) -> tuple[PackedPart, ...]:
        old = {} if known is None else known.cells
        kept = [
            known is not None and all(cells[i] is old.get(i) for i in c.sources)
            for c in self._components
        ]
        coming = [c for c, keep in zip(self._components, kept, strict=True) if not keep]
        shelf = Shelf(self._layout(buffer) for c in coming for buffer in c.buffers)
        made: list[PackedPart] = []
        for number, component in enumerate(self._components):
            if known is not None and kept[number]:
                made.append(known.parts[number])
                continue
            sources = [cells[i] for i in sorted(component.sources)]
            states = tuple((id(cell.reference()), cell.state) for cell in sources)
            # What changes later in the process is packed in its own memory.
            place = self._place if known is None else None
            key = (self._recipes[number], states, place)
            shared = all(cell.state.version is not None for cell in sources)
            part = _parts.get(key) if shared else None
            if part is None:
                part = self._packed(number, cells, place if shared else None, shelf)
                if shared:
                    _parts[key] = part
            made.append(part)
        shelf.close()
        return tuple(made)

    def _packed(
        self, number: int, cells: Mapping[int, Cell], place: PackPlace | None, shelf: Shelf
    ) -> PackedPart:
        component = self._components[number]
        if place is None:
            return self._run(component, cells, shelf)
        sources = [cells[i].tensor for i in sorted(component.sources)]
        found = place.find(self._lasting[number], sources)
        if found is None:
            made = self._run(component, cells, shelf)
            found = place.keep(self._lasting[number], sources, made.tensors) or made.tensors
        return PackedPart(tuple(found))

    def _run(self, component: Component, cells: Mapping[int, Cell], shelf: Shelf) -> PackedPart:
        part = PackedPart(tuple(shelf.tensor(self._layout(b)) for b in component.buffers))
        addresses = {self._places[i]: cells[i].address for i in component.sources}
        for buffer, tensor in zip(component.buffers, part.tensors, strict=True):
            addresses[buffer] = tensor.data_ptr()
        self._prepare(addresses, component.launches)
        self.repacks += 1
        return part

    def _layout(self, buffer: int) -> Layout:
        spec = self._plan.buffers[buffer]
        shape = tuple(evaluate(dim, {}) for dim in spec.shape)
        strides = tuple(evaluate(dim, {}) for dim in spec.strides)
        return shape, strides, to_torch(spec.dtype)

    def _write_table(self, binding: Binding) -> None:
        rows = [self._record(binding, cell) for cell in binding.cells.values()]
        cells = records(CellRecord, rows)
        packed = records(
            PackedRecord, [PackedRecord(i, t.data_ptr()) for i, t in binding.packed.items()]
        )
        table = BindingTable(
            len(cells), ctypes.addressof(cells), len(packed), ctypes.addressof(packed)
        )
        binding.keep += [cells, packed, table]
        binding.address = ctypes.addressof(table)

    def _record(self, binding: Binding, cell: Cell) -> CellRecord:
        state = cell.state
        layout = words(state.layout)
        contents = ctypes.create_string_buffer(state.sample.contents, len(state.sample.contents))
        binding.keep += [layout, contents]
        watched = self._watched(cell) and state.version is not None
        return CellRecord(
            object=id(cell.reference()),
            argument=cell.argument,
            impl=state.impl,
            data=state.data,
            version=state.version or 0,
            versioned=watched,
            rank=len(state.layout) // 2,
            dtype=state.dtype,
            layout=ctypes.addressof(layout),
            buffer=self._places[cell.argument],
            address=cell.address,
            pieces=state.sample.count if watched else 0,
            piece_bytes=state.sample.width,
            pitch=state.sample.pitch,
            contents=ctypes.addressof(contents),
        )


class _Forgetter:
    """Drops the bindings of a parameter that has died, without keeping their owner alive."""

    def __init__(self, owner: Parameters, key: int) -> None:
        self._owner, self._key = weakref.ref(owner), key

    def __call__(self, _: object) -> None:
        owner = self._owner()
        if owner is not None:
            owner._forget(self._key)
