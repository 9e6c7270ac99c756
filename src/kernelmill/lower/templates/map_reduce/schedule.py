"""Schedule of a map or a reduction: the axes that merge, and the axis that vectors run along."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, evaluate, linear_part, symbols
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.lower.elements import views
from kernelmill.lower.elements.axes import operand_index
from kernelmill.lower.elements.domain import (
    AccessKind,
    Axis,
    IndexAccess,
    axes_of,
    collect,
    count,
    merge_axes,
    stride_score,
)  # fmt: skip
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.costs import Costs, has_chains
from kernelmill.lower.fusion.groups import FusionGroup


@dataclass(frozen=True)
class Nest:
    """The loops of a kernel: a fusion group without a seed, and its memory.

    targets   for each root of the group the memory it is stored to
    costs     of the graph's values
    stored    where values lie that the group reads, None for its own members
    """

    group: FusionGroup
    targets: Mapping[Value, Location]
    costs: Costs
    stored: Callable[[Value], Location | None]

    @cached_property
    def reductions(self) -> dict[Value, Index]:
        """The group's reductions with their index, which uses outer axes only."""
        return self.group.reductions()

    @cached_property
    def computed(self) -> list[tuple[Value, Index]]:
        """Elements that the loops compute, with their indices in the domain."""
        pairs = [(v, i) for v, i in self.group.roots.items() if v not in self.reductions]
        for value, index in self.reductions.items():
            assert value.node is not None
            at = operand_index(value.node, index, self.group.inner)
            pairs.append((value.node.operands[0], at))
        return pairs


@dataclass(frozen=True)
class NestSchedule:
    """The schedule of a nest, as `plan_nest` decides it.

    lanes         of a vector
    outer, inner  the loops: axes of the group, those that are one step after another merged
    merged        each merged axis of the group in terms of the loops
    accesses      to memory, in terms of the loops
    along_inner   whether vectors run along the last inner axis, else along `vector`
    vector        the outer axis along which neighbours are neighbours in memory; None without one
    far_bytes     buffers from this size on are read from beyond the second-level cache
    work          estimated nanoseconds of all tasks on one core
    """

    lanes: int
    outer: Sequence[Axis]
    inner: Sequence[Axis]
    merged: Mapping[str, Dim]
    accesses: Sequence[IndexAccess]
    along_inner: bool
    vector: Axis | None
    far_bytes: int
    work: Dim


def plan_nest(nest: Nest, machine: Machine) -> NestSchedule:
    """Return the only schedule of a group."""
    group = nest.group
    lanes = _lanes(group, machine)
    outer, merged, accesses = merge_axes(axes_of(group.outer, group.extents), _accesses(nest))
    inner, more, accesses = merge_axes(axes_of(group.inner, group.extents), accesses)
    along_inner = bool(nest.reductions) and _reads_along_inner(outer, inner, accesses, lanes)
    if outer and any(v.node is not None and v.node.attrs.get("ordered") for v in nest.reductions):
        along_inner = False
    vector = _best_outer(outer, accesses, lanes) if outer and not along_inner else None
    work = _work(nest, machine, accesses, lanes, count([*outer, *inner]))
    lanes *= _vectors_at_once(nest, machine, accesses, lanes, vector)
    return NestSchedule(
        lanes, outer, inner, {**merged, **more}, accesses, along_inner, vector, machine.l2_bytes,
        work,
    )  # fmt: skip


def _vectors_at_once(
    nest: Nest, machine: Machine, accesses: Sequence[IndexAccess], lanes: int, vector: Axis | None
) -> int:
    """Return how many vectors side by side keep the processor busy."""
    count = machine.isa.vector_registers // 8
    if nest.reductions or vector is None or not has_chains(nest.group.nodes, machine.isa):
        return 1
    steps = [linear_part(access.expression, vector.name) for access in accesses]
    whole = isinstance(vector.extent, int) and vector.extent % (count * lanes) == 0
    return count if whole and all(s is not None and s[0] in (0, 1) for s in steps) else 1


def nest_loss(schedule: NestSchedule, sizes: Mapping[str, int]) -> float:
    """Return the `Loss` (lower/schedule/template.py). Only passes of the outer loops may be
    symbolic: the rest of a vector axis costs a vector more. Addresses and conditions over symbolic
    sizes have costs that are not counted here."""
    inside = [axis.extent for axis in schedule.inner]
    read = [access.expression for access in schedule.accesses]
    if any(sizes.keys() & symbols(dim).keys() for dim in (*inside, *read)):
        return math.inf
    vector = schedule.vector
    if vector is None or isinstance(vector.extent, int):
        return 0.0
    extent = evaluate(vector.extent, sizes)
    return schedule.lanes / extent if extent else 0.0


def _accesses(nest: Nest) -> list[IndexAccess]:
    accesses = collect(nest.computed, nest.stored, set(nest.reductions))
    for value, location in nest.targets.items():
        stored_at = views.address(nest.group.roots[value], location.strides, location.offset)
        accesses.append(IndexAccess(stored_at, AccessKind.STORE, location.dtype, value))
    return accesses


def _reads_along_inner(
    outer: Sequence[Axis], inner: Sequence[Axis], accesses: Sequence[IndexAccess], lanes: int
) -> bool:
    """Return whether the passes over the inner axes read better along the last of these."""
    if not inner or not outer:
        return True
    names = {axis.name for axis in inner}
    passes = [a for a in accesses if symbols(a.expression).keys() & names]
    if any(_steps_shortly(axis, inner[-1], passes, lanes) for axis in outer):
        return False
    scores = [stride_score(axis, passes, lanes) for axis in outer]
    return stride_score(inner[-1], passes, lanes) >= max(scores)


def _steps_shortly(axis: Axis, inner: Axis, accesses: Sequence[IndexAccess], lanes: int) -> bool:
    """Return whether vectors along an outer axis step by two or three elements with each lane, and
    the inner axis, a window's, is too short to fill one."""
    loads = [a for a in accesses if a.kind is AccessKind.LOAD]
    steps = [linear_part(a.expression, axis.name) for a in loads]
    long = not isinstance(axis.extent, int) or axis.extent >= lanes
    short = isinstance(inner.extent, int) and inner.extent < lanes
    return short and long and all(step is not None and step[0] in (2, 3) for step in steps)


def _best_outer(outer: Sequence[Axis], accesses: Sequence[IndexAccess], lanes: int) -> Axis:
    scores = [stride_score(axis, accesses, lanes) for axis in outer]
    return outer[max(range(len(scores)), key=lambda i: (scores[i], i))]


def _work(
    nest: Nest, machine: Machine, accesses: Sequence[IndexAccess], lanes: int, elements: Dim
) -> Dim:
    """Return the larger of the costs of memory traffic and arithmetic."""
    traffic = sum(a.dtype.bytes for a in accesses if a.dtype is not None)
    cost = sum(nest.costs.operations.get(value, 0) for value, _ in nest.computed)
    memory = machine.time(0, {"memory": traffic})
    arithmetic = cost / lanes / machine.rates.dependent
    tenths = max(1, int(10 * max(memory, arithmetic)))
    return elements * tenths // 10 + 1


def _lanes(group: FusionGroup, machine: Machine) -> int:
    """Return the lanes of a vector that fill a register in the widest type the group computes in.

    64-bit types count as 32-bit ones: two registers, and what is beside them stays whole.
    """
    bits = [
        value.dtype.compute.bits
        for node in group.nodes
        for value in (*node.operands, *node.results)
        if not value.dtype.is_opaque
    ]
    return max(1, machine.isa.vector_bits // min(32, max(bits, default=32)))


MOST_SEGMENTS = 64
"""Each is code of its own."""

MANY_BRANCHES = 5
"""Fewer parts of an axis that is no vector's are told apart by branches, once a row."""


def segments(axis: Axis, accesses: Iterable[IndexAccess]) -> Sequence[tuple[int, int]]:
    """Return the parts [first, end) of an axis; none where there is nothing to gain."""
    if not isinstance(axis.extent, int):
        return ()
    conditions = {a.expression for a in accesses if a.kind is AccessKind.CONDITION}
    cuts = {cut for condition in conditions for cut in _cuts(condition, axis)}
    inside = sorted(cut for cut in cuts if 0 < cut < axis.extent)
    if not inside or len(inside) >= MOST_SEGMENTS:
        return ()
    return tuple(pairwise((0, *inside, axis.extent)))


def _cuts(condition: Dim, axis: Axis) -> Iterator[int]:
    """Yield positions where `condition >= 0` begins or ends whatever other axes are."""
    linear = linear_part(condition, axis.name)
    factor = 0 if linear is None else linear[0]
    if linear is None or not isinstance(factor, int) or factor == 0:
        return
    for bound in bounds(linear[1]):
        if bound is not None:
            yield -(bound // factor) if factor > 0 else bound // -factor + 1
