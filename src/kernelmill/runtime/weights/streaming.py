"""Streaming calls: until all weights are packed, a launch's weights are packed just before it.

Page faults of fresh memory take far longer than packing. So the first call packs the weights of
each launch before it, always into the same few megabytes, which stay in the caches. A thread packs
all weights permanently (binding.py), and so do later calls, in shares, while the thread pauses. A
part is used as soon as it is packed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import to_torch
from kernelmill.plan.ir import AtenCall, BufferKind, Launch, Plan, buffers_in
from kernelmill.runtime.memory.allocation import Layout, aligned_bytes
from kernelmill.runtime.memory.dims import fixed_layout


@dataclass(frozen=True)
class Component:
    """Prepare launches that share packed buffers, and so run together, in order. `launches` are
    numbers in `plan.prepare`; `sources` the arguments they read; `buffers` the packed buffers that
    calls read, with their layouts, and `passing` those that only these launches read."""

    launches: tuple[int, ...]
    buffers: dict[int, Layout]
    passing: dict[int, Layout]
    sources: frozenset[int]


def components(plan: Plan) -> tuple[Component, ...]:
    """Return the prepare launches, split into components without a common packed buffer."""
    parts: dict[int, tuple[set[int], set[int]]] = {}  # launches and packed buffers, by any of them
    for number, launch in enumerate(plan.prepare):
        launches = {number}
        buffers = {
            b for b in launch.buffers if b >= 0 and plan.buffers[b].kind == BufferKind.PACKED
        }
        for part in [parts[b] for b in buffers if b in parts]:
            launches |= part[0]
            buffers |= part[1]
        parts.update(dict.fromkeys(buffers, (launches, buffers)))
    launched = (step.buffers for step in plan.steps if isinstance(step, Launch))
    read = _read_by_torch(plan).union(*launched)

    def layouts(buffers: set[int]) -> dict[int, Layout]:
        specs = {buffer: plan.buffers[buffer] for buffer in sorted(buffers)}
        return {b: (*fixed_layout(spec), to_torch(spec.dtype)) for b, spec in specs.items()}

    def component(launches: set[int], buffers: set[int]) -> Component:
        order, kept, passing = sorted(launches), layouts(buffers & read), layouts(buffers - read)
        return Component(tuple(order), kept, passing, _sources(plan, launches))

    return tuple(component(*part) for part in {min(p[0]): p for p in parts.values()}.values())


def _read_by_torch(plan: Plan) -> set[int]:
    calls = [step for step in (*plan.steps, *plan.views) if isinstance(step, AtenCall)]
    return {buffer for call in calls for buffer in buffers_in((call.args, call.kwargs))}


def _sources(plan: Plan, launches: set[int]) -> frozenset[int]:
    return frozenset(
        plan.buffers[buffer].source
        for launch in launches
        for buffer in plan.prepare[launch].buffers
        if buffer >= 0 and plan.buffers[buffer].kind == BufferKind.INPUT
    )


def recipe(plan: Plan, component: Component, kernels: Mapping[str, Hashable]) -> Hashable:
    """Return a key of a component's packing, equal for two programs that pack alike: kernels, sizes
    and buffers of its launches. Sources and packed buffers count by their order."""
    order = {buffer: ("packed", place) for place, buffer in enumerate(component.buffers)}
    order |= {buffer: ("passing", place) for place, buffer in enumerate(component.passing)}

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


LEAST_BYTES = 16 << 20
"""Size below which all is packed at once: it takes no longer than a few calls."""

LARGEST_BYTES = 32 << 20
"""Size of a component, packed or not, above which it is packed at once: it fits no cache."""

SHARE_BYTES = 64 << 20
"""Least bytes that a call packs for good once an earlier one has streamed."""

SHARE_PART = 1 / 16
"""Least share of all that a call packs: the thread may get no time, and calls have to finish."""

LEAST_TURNS = 4
"""Least reuses of the memory: with fewer, streaming gains little."""


@dataclass(frozen=True)
class Readers:
    """The first and the last launch that read a component, in native numbering."""

    first: int
    last: int


def readers(plan: Plan, components: Sequence[Component]) -> list[Readers | None]:
    """Return the readers of each component; None if an operator of torch reads it, or nothing."""
    owner = {b: number for number, part in enumerate(components) for b in part.buffers}
    found: dict[int, Readers] = {}
    for launch, (begins, step) in enumerate(_launches(plan)):
        for buffer in step.buffers:
            number = owner.get(buffer)
            if number is not None:
                found[number] = Readers(found[number].first if number in found else begins, launch)
    called = _read_by_torch(plan)
    return [
        None if called & part.buffers.keys() else found.get(number)
        for number, part in enumerate(components)
    ]


def _launches(plan: Plan) -> Iterator[tuple[int, Launch]]:
    """Yield the launches, each with the number of the one that it runs with: the first of its super
    kernel, or itself."""
    native = list(accumulate((isinstance(s, Launch) for s in plan.steps), initial=0))
    begins = {
        step: native[whole.first]
        for whole in plan.supers
        for step in range(whole.first, whole.last)
    }
    for number, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            yield begins.get(number, native[number]), step


@dataclass(frozen=True)
class StreamLayout:
    """The layout of a plan's streaming calls: `order` has (launch, component) by launch, `sizes`
    the bytes of each component, `offsets` the offset of each packed buffer in memory of `bytes`
    bytes."""

    order: tuple[tuple[int, int], ...]
    sizes: Mapping[int, int]
    offsets: Mapping[int, int]
    bytes: int

    def share(self, pending: Collection[int]) -> list[int]:
        """Return the pending components that a call packs for good."""
        found: list[int] = []
        left = max(SHARE_BYTES, sum(self.sizes[number] for _, number in self.order) * SHARE_PART)
        for _, number in self.order:
            if number in pending and left > 0:
                found.append(number)
                left -= self.sizes[number]
        return found


def stream_of(
    plan: Plan, components: Sequence[Component], wanted: Collection[int]
) -> StreamLayout | None:
    """Return how calls can stream the `wanted` components, without those that cannot be streamed;
    None if that saves too little."""
    reading = readers(plan, components)
    layouts = {n: components[n].buffers | components[n].passing for n in wanted}
    sizes = {n: {b: aligned_bytes(each[b]) for b in each} for n, each in layouts.items()}
    wholes = {number: sum(each.values()) for number, each in sizes.items()}
    chosen = {
        number: its
        for number in wanted
        if (its := reading[number]) is not None and wholes[number] <= LARGEST_BYTES
    }
    places, needed = _place([(its, sizes[number]) for number, its in chosen.items()])
    whole = sum(wholes[number] for number in chosen)
    if whole < LEAST_BYTES or needed * LEAST_TURNS > whole:
        return None
    order = sorted((its.first, number) for number, its in chosen.items())
    return StreamLayout(tuple(order), wholes, places, needed)


def _place(
    wanted: Sequence[tuple[Readers, Mapping[int, int]]],
) -> tuple[dict[int, int], int]:
    """Return an offset for each buffer of this size, the lowest that is free from its first reader
    to its last; and the end of all."""
    places: dict[int, int] = {}
    live: list[tuple[int, int, int]] = []  # (offset, end, last reader)
    highest = 0
    for its, buffers in sorted(wanted, key=lambda pair: pair[0].first):
        live = [piece for piece in live if piece[2] >= its.first]
        for buffer, size in buffers.items():
            offset = 0
            for begin, end, _ in sorted(live):
                if offset + size <= begin:
                    break
                offset = max(offset, end)
            places[buffer] = offset
            live.append((offset, offset + size, its.last))
            highest = max(highest, offset + size)
    return places, highest
