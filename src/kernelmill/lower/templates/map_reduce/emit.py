"""The map and reduce template: one kernel for a group of pointwise nodes, views and reductions.

A task computes a run of rows. In a pure map a row is one step of all loops but the vector one. With
reductions a row is one element of the outer domain: its reductions are computed in passes over the
inner axes, and the stored values in a last pass, while the row is still in the first-level cache.
Vectors run along the last inner axis, or along an outer axis if that is contiguous in memory. Then
a row is a vector, and several rows go through the loops together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Dim,
    Sym,
    ceildiv,
    linear_part,
    of_atom,
    product,
    recombine,
    substitute,
)  # fmt: skip
from kernelmill.graph.ir import Node, Value, row_major
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import in_range, operand_index, used_axes
from kernelmill.lower.elements.domain import TASK_ELEMENTS, AccessKind, Axis, collect, count
from kernelmill.lower.elements.emitter import Emitter, Location, ScratchLocation
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.costs import extent
from kernelmill.lower.templates.map_reduce.reduction import FoldSums, Reduction, Registers, shares
from kernelmill.lower.templates.map_reduce.schedule import (
    MANY_BRANCHES,
    Nest,
    NestSchedule,
    segments,
)
from kernelmill.lower.templates.map_reduce.transposed import TransposeMap, crosswise_axis
from kernelmill.lower.templates.map_reduce.walk import Place, State, Walk

MAX_SPILL_BYTES = 256 * 1024
"""A row's intermediate results are kept in scratch up to this size, else computed again."""


ROW_BYTES = 1024, 16384
"""Rows of such a length are asked for ahead: shorter ones follow each other within a page, two of
the longer ones do not fit into the first-level cache."""


MOST_REPEATED = 32
"""Accesses that may stand in several parts of an axis, besides as many as there are at all."""


MOST_COLUMNS = 4
"""Vectors along an outer axis that go through the inner loops together."""


MOST_TOGETHER = 1024
"""Rows of up to so many elements go through the passes two at a time: one is folded across lanes,
which is one step after another, while the other streams."""


@dataclass(frozen=True)
class _Spill:
    """A value that pass number `first_pass` computes and keeps in scratch for later passes."""

    value: Value
    index: Index
    strides: tuple[Dim, ...]
    first_pass: int

    def location(self, row: Place) -> ScratchLocation:
        return ScratchLocation(self.value.dtype, self.strides, row.offset)


def emit_nest(emitter: Emitter, nest: Nest, schedule: NestSchedule) -> None:
    """Write the kernel's body, and set its tasks and scratch."""
    _Emission(emitter, nest, schedule).emit()


class _Emission:
    def __init__(self, emitter: Emitter, nest: Nest, schedule: NestSchedule) -> None:
        self.e = emitter
        self.nest = nest
        self.group = nest.group
        self.schedule = schedule
        self.lanes = schedule.lanes
        self.outer, self.inner = schedule.outer, schedule.inner
        self.walk = Walk(emitter, self.lanes, schedule.merged)
        inner_names = {axis.name for axis in self.group.inner}
        roots = self.group.roots
        self.row_roots = {v: i for v, i in roots.items() if not used_axes(i) & inner_names}
        self.full_roots = {v: i for v, i in roots.items() if v not in self.row_roots}

    def emit(self) -> None:
        if not self.nest.reductions:
            self._emit_map()
            return
        self.passes = self._order()
        self.spill: _Spill | None = None
        self.beside: Callable[[], None] | None = None
        if self.schedule.along_inner:
            self._emit_rows()
        else:
            self._emit_columns()

    # ---- pure maps -----------------------------------------------------------------------------

    def _store(self, roots: Mapping[Value, Index]) -> None:
        at = {value: self.walk.at(index) for value, index in roots.items()}
        registers = {value: self.e.element(value, index) for value, index in at.items()}
        for value, register in registers.items():
            self.e.store(self.nest.targets[value], at[value], register)

    def _store_element(self, state: State, _: Register | None) -> State:
        self._store(self.group.roots)
        return state

    def _emit_map(self) -> None:
        walk, vector = self.walk, self.schedule.vector
        if vector is None:
            walk.set_tasks(1)
            self._store(self.group.roots)
            return
        others = [axis for axis in self.outer if axis is not vector]
        crosswise = crosswise_axis(vector, others, self.schedule.accesses, self.lanes)
        if crosswise is not None:
            axis, loads = crosswise
            rest = [other for other in others if other is not axis]
            turned = TransposeMap(walk, vector, axis, loads, lambda: self._store(self.group.roots))
            turned.emit(rest)
            return
        parts = self._parts(vector)
        short = isinstance(vector.extent, int) and vector.extent <= TASK_ELEMENTS
        if not others and not (parts and short):
            walk.flat(vector, self._store_element)
            return
        loops = [vector]
        walk.parts[vector.name] = parts
        stacked = self._parts(others[-1]) if not parts and len(others) > 1 else ()
        if len(stacked) >= MANY_BRANCHES:
            loops = [others.pop(), vector]
            walk.parts[loops[0].name] = stacked
        whole = lambda _: walk.loops(loops, True, self._store_element, walk.nothing)  # noqa: E731
        walk.rows(others, count(loops), whole)

    def _parts(self, axis: Axis) -> Sequence[tuple[int, int]]:
        """Return the parts to cut an axis into, unless most code would be repeated in all of
        them."""
        parts, accesses = segments(axis, self.schedule.accesses), len(self.schedule.accesses)
        if len(parts) < MANY_BRANCHES:
            return parts
        some = parts[:: -(-len(parts) // 3)]
        written = sum(self._accesses_in(axis, *part) for part in some) * len(parts) / len(some)
        return parts if written <= 2 * accesses + MOST_REPEATED else ()

    def _accesses_in(self, axis: Axis, first: int, end: int) -> int:
        here = {axis.name: first + of_atom(Sym("part_", 0, end - first - 1))}
        pairs = [
            (value, tuple(substitute(substitute(i, self.schedule.merged), here) for i in index))
            for value, index in self.nest.computed
        ]
        return len(collect(pairs, self.nest.stored, set(self.nest.reductions)))

    # ---- passes over rows ----------------------------------------------------------------------

    def _order(self) -> list[list[Node]]:
        """Return the reductions by passes: each needs only the results of earlier ones."""
        nodes = [value.node for value in self.nest.reductions if value.node is not None]
        above = {node: self._above(node.operands).intersection(nodes) for node in nodes}
        level: dict[Node, int] = {}
        for node in sorted(nodes, key=lambda node: len(above[node])):
            level[node] = 1 + max((level[other] for other in above[node]), default=-1)
        last = max(level.values())
        return [[n for n in level if level[n] == number] for number in range(last + 1)]

    def _above(self, values: Iterable[Value], stop: Collection[Value] = ()) -> set[Node]:
        """Return the nodes that compute these values, without what is before one of `stop`."""
        found: set[Node] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            known = value in stop or self.e.stored(value) is not None
            if value.node is not None and value.node not in found and not known:
                found.add(value.node)
                pending += value.node.operands
        return found

    def _emit_passes(self, rows: Sequence[Sequence[Place]]) -> None:
        """Emit all passes over the rows; those that are together go through loops side by side."""
        for number, nodes in enumerate(self.passes):
            for places in rows:
                self._pass(number, [Reduction(node) for node in nodes], places)
        for places in rows:
            self._finish(places)

    def _pass(self, number: int, reductions: Sequence[Reduction], places: Sequence[Place]) -> None:
        """Fold the elements of rows. Where their order counts, a vector is one."""
        b, along = self.e.builder, self.schedule.along_inner
        ordered = any(r.is_ordered for r in reductions)
        vectors = along and bool(self.inner) and not ordered
        sums = FoldSums(b, reductions, self.lanes if vectors or not along else 1)
        spill = self.spill if self.spill is not None and self.spill.first_pass == number else None
        # The second pass reads what is in the cache, and does not write past it yet.
        beside = self.beside if number == min(1, len(self.passes) - 1) else None

        def fold(state: State, mask: Register | None) -> State:
            folded: list[Register] = []
            for place, own in zip(places, shares(state, len(places)), strict=True):
                with self.walk.inside(place, keep=not self.inner):
                    folded += self._fold(sums, own, mask)
                    if spill is not None:
                        at = self.walk.at(spill.index)
                        register = self.e.element(spill.value, at)
                        self.e.store_scratch(spill.location(place), at, register)
            if beside is not None and mask is None:
                beside()
            return folded

        state = self.walk.loops(self.inner, vectors, fold, sums.times(len(places)))
        for place, own in zip(places, shares(state, len(places)), strict=True):
            ends = sums.split(own)
            if along:
                ends = [r.across_lanes(b, end) for r, end in zip(reductions, ends, strict=True)]
            for reduction, end in zip(reductions, ends, strict=True):
                place.known[reduction.node.result, None] = reduction.end(b, end)
            if spill is not None:
                place.scratch[spill.value] = spill.location(place)

    def _fold(self, sums: FoldSums, state: State, mask: Register | None) -> list[Register]:
        """Fold the element at the current position into each accumulator."""
        folded: list[Register] = []
        for reduction, old in zip(sums.reductions, sums.split(state), strict=True):
            node = reduction.node
            index = operand_index(node, self.nest.reductions[node.result], self.group.inner)
            at = self.walk.at(index)
            new: Registers = (self.e.element(node.operands[0], at),)
            if reduction.is_arg:
                dim = node.attrs["dim"]
                assert isinstance(dim, int)
                new = (*new, self.e.vector(at[dim]))
            folded += reduction.fold(self.e.builder, old, new, mask)
        return folded

    def _finish(self, places: Sequence[Place]) -> None:
        """Store all that rows make."""
        inner = {axis.name for axis in self.group.inner}
        along = self.schedule.along_inner
        for place in places:
            with self.walk.inside(place, keep=True):
                for value, index in self.group.internal.items() if along else ():
                    # What a whole row shares is computed once, outside the loop over its elements.
                    shared = not used_axes(index) & inner and value not in self.nest.reductions
                    if shared and in_range(index, value.shape):
                        self.e.element(value, self.walk.at(index))
                self._store(self.row_roots)

        def store(state: State, _: Register | None) -> State:
            for place in places:
                with self.walk.inside(place):
                    self._store(self.full_roots)
            return state

        if self.full_roots:
            if along:
                self.walk.parts[self.inner[-1].name] = self._parts(self.inner[-1])
            self.walk.loops(self.inner, along, store, self.walk.nothing)

    # ---- rows: the vector runs along the last inner axis ---------------------------------------

    def _emit_rows(self) -> None:
        self.spill, size = self._plan_spill(), count(self.inner)
        self.beside = self._ahead(self.spill is not None)
        apart = ceildiv(size, self.lanes) * self.lanes

        def emit(places: list[Place]) -> None:
            if self.spill is not None and len(places) > 1:
                bytes = self.spill.value.dtype.compute.bytes
                self.e.builder.kernel.scratch = len(places) * apart * bytes
            for number, place in enumerate(places):
                place.offset = number * apart
            self._emit_passes([[place] for place in places])

        short = isinstance(size, int) and size <= MOST_TOGETHER
        self.walk.rows(self.outer, size, emit, 2 if short else 1)

    def _ahead(self, long: bool) -> Callable[[], None] | None:
        """Return a prefetch of the lines that later rows read, and in `long` passes also of those
        this one writes. Processors guess what is read next within a page only, and passes over a
        row leave memory idle."""
        if not self.inner or not self.outer:
            return None
        row, vector = self.outer[-1], self.inner[-1]
        places = list[tuple[Location, Dim, str]]()
        for access in self.schedule.accesses:
            stores = access.kind is AccessKind.STORE
            if access.value is None or (stores and not long):
                continue
            location = (self.nest.targets.get if stores else self.e.stored)(access.value)
            along, down = (linear_part(access.expression, a.name) for a in (vector, row))
            if location is None or along is None or down is None:
                continue
            step, elements = down[0], location.elements
            if along[0] != 1 or not isinstance(step, int) or not isinstance(elements, int):
                continue
            bytes = step * location.dtype.bytes
            far = elements * location.dtype.bytes >= self.schedule.far_bytes
            if far and ROW_BYTES[0] <= bytes <= ROW_BYTES[1]:
                rows = 0 if stores else 2 if bytes <= ROW_BYTES[1] // 4 else 1
                place = access.expression + step * rows
                places.append((location, place, "out" if stores else "in"))

        def ask() -> None:
            for location, place, use in dict.fromkeys(places):
                self.e.prefetch(location, recombine(substitute(place, self.walk.env)), use)

        return ask if places else None

    def _plan_spill(self) -> _Spill | None:
        """Plan to keep a value that several passes need in scratch, if the row is small and
        computing it each time is slower."""
        extents = [self.group.extents[axis.name] for axis in self.group.inner]
        by_axis = {a.name: s for a, s in zip(self.group.inner, row_major(extents), strict=True)}
        for value, index in self.group.internal.items():
            if value in self.nest.reductions or not in_range(index, value.shape):
                continue
            strides, users = _scratch_strides(index, by_axis), self._passes_using(value)
            if strides is None or not any(strides):
                continue
            if not self.nest.costs.keeps(value, extent(extents), len(users)):
                continue
            size = product(extents) * value.dtype.compute.bytes
            fits = not isinstance(size, int) or 0 < size <= MAX_SPILL_BYTES
            if users[0] != len(self.passes) and fits:
                self.e.builder.kernel.scratch = size
                return _Spill(value, index, strides, users[0])
        return None

    def _passes_using(self, value: Value) -> list[int]:
        """Return the numbers of the passes that compute this value; the last pass stores."""
        computed = [[o for node in nodes for o in node.operands] for nodes in self.passes]
        return [
            number
            for number, values in enumerate([*computed, [*self.full_roots]])
            if value.node in self._above(values, self.nest.reductions)
        ]

    # ---- columns: the vector runs along an outer axis ------------------------------------------

    def _emit_columns(self) -> None:
        vector = self.schedule.vector
        assert vector is not None
        others = [axis for axis in self.outer if axis is not vector]
        parts = self._parts(vector) if others else ()
        if parts:
            in_parts = lambda _: [self._emit_part(vector, *part) for part in parts]  # noqa: E731
            self.walk.rows(others, count([*self.inner, vector]), in_parts)
            return
        # Whole runs of memory go through the inner loops together.
        whole = vector.extent // self.lanes if isinstance(vector.extent, int) else 1
        number = next((n for n in (MOST_COLUMNS, 2) if n <= whole), 1)
        width = self.lanes * number
        blocks = ceildiv(vector.extent, width)
        block = Axis(self.e.builder.fresh_symbol("c", 0, blocks - 1), blocks)

        def emit(_: list[Place]) -> None:
            first = self.walk.env[block.name] * width
            end = None if vector.extent % width == 0 else vector.extent
            self._emit_passes([self.walk.places(vector, first, number, end)])

        self.walk.rows([*others, block], count(self.inner) * width, emit)

    def _emit_part(self, vector: Axis, first: int, end: int) -> None:
        """Emit a part of the axis: as many vectors together as allowed, then the rest, whose last
        vector repeats some elements of the one before it."""
        walk, lanes, width = self.walk, self.lanes, self.lanes * MOST_COLUMNS
        runs, left = divmod((end - first) // lanes, MOST_COLUMNS)
        if runs:
            with walk.b.loop(0, runs, prefix="c") as loop, self.e.block():
                at = first + loop.index * width
                self._emit_passes([walk.places(vector, at, MOST_COLUMNS)])
        columns = walk.places(vector, first + runs * width, left)
        if end - first < lanes:
            columns = walk.places(vector, first, 1, end)
        elif (end - first) % lanes:
            columns.append(walk.place(vector, end - lanes))
        if columns:
            with self.e.block():
                self._emit_passes([columns])


def _scratch_strides(index: Index, strides: Mapping[str, Dim]) -> tuple[Dim, ...] | None:
    """Return the scratch stride of each component of a value's index: 0 for those of outer axes.
    None where components are anything else of inner axes, such as a part of one, or the same one
    twice: they would not tell a row's elements apart, or leave its room."""
    found: list[Dim] = []
    seen: set[str] = set()
    for position in index:
        inside = used_axes((position,)) & strides.keys()
        if not inside:
            found.append(0)
            continue
        (axis, *others) = inside
        if others or axis in seen or linear_part(position, axis) != (1, 0):
            return None
        seen.add(axis)
        found.append(strides[axis])
    return tuple(found)
