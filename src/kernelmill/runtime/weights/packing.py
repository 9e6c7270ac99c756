"""Long-lived arguments (parameters): bound once, checked natively at each call, packed when used.

A *bound parameter* is the native entry's record of one: the Python object, its TensorImpl, address,
layout, version, and the way of checking its contents (contents.py). Without changes a call reads no
parameter in Python. After a change, a new binding replaces the old one, and only packed buffers
that depend on a changed argument, directly or through other packed buffers, are made again.

Packed buffers are shared by all programs of the process that pack a parameter alike (the gears of a
model, its prefill and its decode step): each searches those of the others first.

Sets of parameters are distinguished by the identity of one of them, so a program which is called
for every layer keeps a binding for each. When a storage dies, its packed buffers are dropped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

import torch

from kernelmill.core.after_fork import ReentryLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import digest_of
from kernelmill.plan.ir import Plan
from kernelmill.runtime import background
from kernelmill.runtime.counters import Count
from kernelmill.runtime.memory.allocation import HugePageArena
from kernelmill.runtime.weights.binding import (
    BoundSet,
    PackedPart,
    PackJob,
    PackSource,
    Prepare,
    Task,
    can_copy,
    once,
    pack,
    write_table,
)
from kernelmill.runtime.weights.contents import (
    BoundParameter,
    BoundParameters,
    CheckWeights,
    Way,
    memory_span,
    page_out,
)
from kernelmill.runtime.weights.streaming import Component, components, recipe, stream_of
from kernelmill.runtime.weights.write_watch import write_watch
from kernelmill.torch_internals.tensors import impl_at

_parts: weakref.WeakValueDictionary[Hashable, PackedPart] = weakref.WeakValueDictionary()
"""Parts of this process's bindings, by recipe and sources."""


_MOST_BESIDE = 32
"""Most sets of parameters with one key that keep their packed parts besides the last set."""

COUNTS = {
    "weights_watched": (Way.PAGES, Way.SHARED),
    "weights_compared": (Way.WHOLE, Way.DIGEST),
    "weights_sampled": (Way.PIECES,),
}
"""Counters of a report, by the ways of checking contents."""

Tensors = Mapping[int, torch.Tensor]
"""The tensors that kernels read, by argument."""


class PackPlace(Protocol):
    """A place in which packed buffers outlive their process. `recipe` identifies the packing in
    every process; `sources` are its inputs, in order. Returned contents are never written to."""

    def find(self, recipe: str, sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor] | None:
        """Return the contents of the buffers, as bytes; None if they are not stored."""
        ...

    def keep(
        self, recipe: str, sources: Sequence[torch.Tensor], packed: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor] | None:
        """Store the buffers, and return what `find` will return; None if that fails."""
        ...


@dataclass(frozen=True)
class Packs:
    """A place for packed buffers, and identities of kernels by name, valid in every process."""

    place: PackPlace
    identities: Mapping[str, str]


class Parameters:
    """The long-lived arguments of a program, and their bindings.

    `validate` is that of `BoundParameters`. `preparer(threaded)` gives a function that runs prepare
    launches for one caller at a time, on all threads or on its own.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, int],
        places: Mapping[int, int],
        validate: Callable[[int, object], torch.Tensor],
        preparer: Callable[[bool], Prepare],
        packs: Packs | None = None,
    ) -> None:
        self._plan, self._places, self._preparer = plan, places, preparer
        self.components = components(plan)
        self._recipes = [recipe(plan, part, kernels) for part in self.components]
        self._place = None if packs is None else packs.place
        self._lasting = [
            "" if packs is None else digest_of(str(recipe(plan, part, packs.identities)).encode())
            for part in self.components
        ]
        packed_from = frozenset[int]().union(*(part.sources for part in self.components))
        self._bound = BoundParameters(tuple(places), packed_from, validate)
        # A packed weight identifies the layer best: it is seldom shared between layers.
        self.key_argument = min(packed_from or places)
        self.bindings: dict[int, BoundSet] = {}
        self._transient: dict[int, BoundSet] = {}
        self._beside: dict[int, list[BoundSet]] = {}
        self._key_at: dict[int, int] = {}
        self._busy = ReentryLock()
        self._repacks = self._background_repacks = 0
        self._streamed = 0
        self.streams = True  # whether first calls may stream

    def check_weights(self, check: CheckWeights) -> None:
        """Set how writes to packed weights are detected, from the next binding on."""
        with self._busy.enter():
            self._bound.check = check
            self.bindings.clear()
            self._transient.clear()
            self._beside.clear()

    def bind(self, arguments: Sequence[object], again: bool = False) -> BoundSet:
        """Return a binding for the current state of these arguments; `again` for a call that
        already had one. InputError names one that cannot be bound."""
        with self._busy.enter() as first, background.paused():
            if not first or write_watch().busy:
                return self._bound_once(arguments)
            key = id(arguments[self.key_argument])
            last = self.bindings.get(key)
            sets = [*self._beside.get(key, ()), *([] if last is None else [last])]
            its_own = next((binding for binding in sets if binding.is_for(arguments)), None)
            known = its_own or last or self._transient.get(key)
            old = known.bound if known is not None else {}
            bound = self._bound.read(arguments, old, _BindingFinalizer(self, key))
            tensors = {i: _read_as(parameter, arguments[i]) for i, parameter in bound.items()}
            parts, job = self._pack(bound, tensors, known, again)
            pending = frozenset(number for number, part in enumerate(parts) if part is None)
            binding = self._binding(bound, parts, pending, job if pending else None)
            self._streamed += bool(pending) and not again
            write_table(binding, self._places)
            self._forget(key)
            self._settle(key, bound[self.key_argument])
            (self.bindings if impl_at.works and not pending else self._transient)[key] = binding
            self._keep_beside(key, [each for each in sets if each is not its_own])
            return binding

    def _bound_once(self, arguments: Sequence[object]) -> BoundSet:
        """Return a binding for a call that a signal handler or a finalizer makes while its thread
        is binding or looking for writes. All is packed anew, in its own frame and memory, so that
        half-done state is not touched."""
        bound = self._bound.read_once(arguments)
        tensors = {i: _read_as(parameter, arguments[i]) for i, parameter in bound.items()}
        prepare = self._preparer(True)
        layouts = (layout for part in self.components for layout in part.buffers.values())
        arena = HugePageArena(layouts)
        parts = [self._run(part, tensors, arena, prepare) for part in self.components]
        binding = self._binding(bound, parts, frozenset(), None)
        write_table(binding, self._places)
        return binding

    def _binding(
        self,
        bound: Mapping[int, BoundParameter],
        parts: Sequence[PackedPart | None],
        pending: frozenset[int],
        job: PackJob | None,
    ) -> BoundSet:
        packed = {
            buffer: tensor
            for component, part in zip(self.components, parts, strict=True)
            if part is not None
            for buffer, tensor in zip(component.buffers, part.tensors, strict=True)
        }
        return BoundSet(bound, tuple(parts), packed, pending, job)

    def _settle(self, key: int, parameter: BoundParameter) -> None:
        """Make this the only binding for the memory of this parameter: an object that had it before
        may have died unnoticed."""
        other = self._key_at.get(parameter.state.data, key)
        if other != key:
            self._forget(other)
            self._beside.pop(other, None)
        self._key_at[parameter.state.data] = key

    def counts(self) -> Generator[Count]:
        """Yield the counters of `Program.report` about parameters: bytes of packed buffers that
        later calls may use, components packed for good so far, calls that streamed, components that
        are still streamed; ways of checking contents, and parameters copied so far."""
        yield "repacks", self, self._repacks + self._background_repacks
        yield "streamed", self, self._streamed
        yield "copies", self, self._bound.copies
        bindings = [*self.bindings.values(), *self._transient.values()]
        beside = [binding for sets in list(self._beside.values()) for binding in sets]
        for part in [part for each in (*bindings, *beside) for part in each.parts if part]:
            yield "packed_bytes", part, sum(tensor.nbytes for tensor in part.tensors)
        for binding in bindings:
            for parameter in binding.bound.values():
                for name, among in COUNTS.items():
                    yield name, parameter.object, int(parameter.way in among)
            if binding.job is not None:
                for number in binding.pending - binding.job.parts.keys():
                    yield "packing", binding.job.keys[number], 1

    def _forget(self, key: int) -> None:
        self.bindings.pop(key, None)
        self._transient.pop(key, None)

    def _keep_beside(self, key: int, sets: Sequence[BoundSet]) -> None:
        """Keep the packed buffers of these bindings whose memory is alive."""
        alive = [binding for binding in sets if binding.is_alive]
        if alive:
            self._beside[key] = alive[-_MOST_BESIDE:]
        else:
            self._beside.pop(key, None)

    def forget_dead(self, key: int) -> None:
        """Drop the parts that a binding has packed from freed memory, and the binding when no part
        is left. It serves no further call."""
        self._keep_beside(key, self._beside.get(key, ()))
        last = self.bindings.get(key)
        if last is not None and last.is_alive:
            return  # it was of another set
        known = last or self._transient.get(key)
        self._forget(key)
        if known is None:
            return
        alive = {
            i: parameter for i, parameter in known.bound.items() if parameter.storage() is not None
        }
        if self.key_argument in known.bound and self.key_argument not in alive:
            self._key_at.pop(known.bound[self.key_argument].state.data, None)
        parts = [
            part if component.sources <= alive.keys() else None
            for component, part in zip(self.components, known.parts, strict=True)
        ]
        if any(parts) or (known.pending and alive):
            self._transient[key] = self._binding(alive, parts, known.pending, known.job)

    def _pack(
        self,
        bound: Mapping[int, BoundParameter],
        tensors: Tensors,
        known: BoundSet | None,
        again: bool,
    ) -> tuple[list[PackedPart | None], PackJob | None]:
        parts = [self._known_part(n, bound, known) for n in range(len(self.components))]
        missing = [number for number, part in enumerate(parts) if part is None]
        if not missing:
            return parts, None
        job = self._new_job(missing, bound, tensors) if known is None else known.job
        pending = set[int]()
        if job is not None and not job.over:
            pending = {n for n in missing if n in job.keys}
            if known is not None:
                pending = {n for n in pending if self._kept(n, bound, known)}
                # Each later call packs a share; a call that is bound twice is not two.
                pending -= set() if again else set(job.stream.share(pending))
        at_once = [n for n in missing if n not in pending]
        # A share is small enough to wait for large pages, to which it may never be moved later.
        layouts = (layout for n in at_once for layout in self.components[n].buffers.values())
        arena = HugePageArena(layouts, waiting=known is None or job is None)
        for number in at_once:
            # Later changes in the process are packed in its own memory.
            place = self._place if known is None else None
            key = self._key(number, bound, place)
            make = partial(self._packed, number, tensors, place, arena, key)
            parts[number] = once(key, partial(_parts.get, key), make)
        arena.close()
        return parts, job

    def _kept(self, number: int, bound: Mapping[int, BoundParameter], known: BoundSet) -> bool:
        """Return whether a component's sources are unchanged since a binding."""
        return all(bound[i] is known.bound.get(i) for i in self.components[number].sources)

    def _known_part(
        self, number: int, bound: Mapping[int, BoundParameter], known: BoundSet | None
    ) -> PackedPart | None:
        if known is not None and self._kept(number, bound, known):
            part = known.parts[number]
            if part is None and known.job is not None:
                part = known.job.parts.get(number)
            if part is not None:
                return part
        return _parts.get(self._key(number, bound, self._place if known is None else None))

    def _key(
        self, number: int, bound: Mapping[int, BoundParameter], place: PackPlace | None
    ) -> tuple[Hashable, ...]:
        """Return the key of a component's sources and recipe."""
        sources = [bound[i] for i in sorted(self.components[number].sources)]
        return (self._recipes[number], *((c.state, c.way) for c in sources), place)

    def _new_job(
        self, missing: Sequence[int], bound: Mapping[int, BoundParameter], tensors: Tensors
    ) -> PackJob | None:
        """Return a job for those of the missing components that a first call can stream."""
        if not self.streams or self._place is not None or not can_copy():
            return None
        keys = {number: self._key(number, bound, None) for number in missing}
        stream = stream_of(self._plan, self.components, missing)
        if stream is None:
            return None
        keys = {number: keys[number] for _, number in stream.order}
        tasks = [self._task(number, bound, tensors, key) for number, key in keys.items()]
        return PackJob(stream, tasks, keys, partial(self._preparer, False))

    def _task(
        self, number: int, bound: Mapping[int, BoundParameter], tensors: Tensors, key: Hashable
    ) -> Task:
        component = self.components[number]
        sources = [
            PackSource.of(self._places[i], bound[i], tensors[i]) for i in sorted(component.sources)
        ]

        def keep(part: PackedPart) -> None:
            _parts[key] = part
            self._background_repacks += 1

        find = partial(_parts.get, key)
        return Task(number, component, sources, find, keep)

    def _packed(
        self, number: int, tensors: Tensors, place: PackPlace | None, arena: HugePageArena,
        key: Hashable,
    ) -> PackedPart:  # fmt: skip
        component = self.components[number]
        sources = [tensors[i] for i in sorted(component.sources)]
        found = None if place is None else place.find(self._lasting[number], sources)
        if found is None:
            found = self._run(component, tensors, arena, self._prepare).tensors
            if place is not None:
                found = place.keep(self._lasting[number], sources, found) or found
        part = _parts[key] = PackedPart(tuple(found))
        return part

    @cached_property
    def _prepare(self) -> Prepare:
        return self._preparer(True)

    def _run(
        self, component: Component, tensors: Tensors, arena: HugePageArena, prepare: Prepare
    ) -> PackedPart:
        addresses = {self._places[i]: tensors[i].data_ptr() for i in component.sources}
        part = pack(component, addresses, arena, prepare)
        for i in component.sources:
            page_out(*memory_span(tensors[i]))
        self._repacks += 1
        return part


def _read_as(parameter: BoundParameter, argument: object) -> torch.Tensor:
    assert isinstance(argument, torch.Tensor)
    return argument if parameter.copy is None else parameter.copy


class _BindingFinalizer:
    """Callback for the death of a binding's storage. It does not keep the binding's owner alive."""

    def __init__(self, owner: Parameters, key: int) -> None:
        self._owner, self._key = weakref.ref(owner), key

    def __call__(self, _: object) -> None:
        owner = self._owner()
        if owner is not None:
            owner.forget_dead(self._key)
