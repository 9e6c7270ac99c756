"""The map and reduce template: one kernel for a group of pointwise nodes, views and reductions.

A task handles a run of rows. In a pure map a row is one step of all loops but the vector one. With
reductions (fold.py) a row is one element of the outer domain: its reductions are computed in
passes over the inner axes, then whatever the group stores is computed in a last pass, while the
row is still in the first-level cache. The vector runs along the last inner axis, or along an outer
axis where that is what is contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

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
from kernelmill.lower.elements.axes import in_range, used_axes
from kernelmill.lower.elements.domain import TASK_ELEMENTS, AccessKind, Axis, collect
from kernelmill.lower.elements.emitter import Emitter, Known, Location, ScratchLocation
from kernelmill.lower.elements.loops import Loops, count
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.costs import extent
from kernelmill.lower.templates.map_reduce.fold import Column, Fold, Reduction, Spill, levels
from kernelmill.lower.templates.map_reduce.schedule import (
    MANY_BRANCHES,
    Nest,
    NestSchedule,
    segments,
)
from kernelmill.lower.templates.map_reduce.transposed import (
    TransposeMap,
    crosswise_axis,
    crosswise_loads,
)

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
class _Row:
    """A current row: its positions, its place for values of later passes, and the registers it has
    made."""

    place: Mapping[str, Dim]
    spill: Spill | None
    known: Known = field(default_factory=lambda: Known())


def emit_nest(emitter: Emitter, nest: Nest, schedule: NestSchedule) -> None:
    """Write the kernel's body, and set its tasks and scratch."""
    _Emission(emitter, nest, schedule).emit()


class _Emission:
    def __init__(self, emitter: Emitter, nest: Nest, schedule: NestSchedule) -> None:
        self.e = emitter
        self.nest = nest
        self.group = nest.group
        self.schedule = schedule
        self.reductions = nest.reductions
        self.lanes = schedule.lanes
        self.outer, self.inner = schedule.outer, schedule.inner
        self.loops = Loops(emitter, self.lanes, schedule.merged)
        inner_names = {axis.name for axis in self.group.inner}
        roots = self.group.roots
        self.row_roots = {v: i for v, i in roots.items() if not used_axes(i) & inner_names}
        self.full_roots = {v: i for v, i in roots.items() if v not in self.row_roots}

    def emit(self) -> None:
        if not self.reductions:
            self._emit_map()
        elif self.schedule.along_inner:
            self._emit_rows()
        else:
            self._emit_columns()

    # ---- pure maps -----------------------------------------------------------------------------

    def _store_roots(self, roots: Mapping[Value, Index]) -> None:
        at = {value: self.loops.at(index) for value, index in roots.items()}
        registers = {value: self.e.element(value, index) for value, index in at.items()}
        for value, register in registers.items():
            self.e.store(self.nest.targets[value], at[value], register)

    def _emit_map(self) -> None:
        if not self.outer:
            self.loops.set_tasks(1)
            self._store_roots(self.group.roots)
            return
        vector = self.schedule.vector
        assert vector is not None
        others = [axis for axis in self.outer if axis is not vector]
        body = lambda: self._store_roots(self.group.roots)  # noqa: E731 - the loops' one body
        crosswise = crosswise_axis(vector, others, self.schedule.accesses, self.lanes)
        if crosswise is not None:
            loads = crosswise_loads(vector, crosswise, self.schedule.accesses)
            rest = [axis for axis in others if axis is not crosswise]
            TransposeMap(self.loops, vector, crosswise, loads, body).emit(rest)
            return
        parts = self._parts(vector)
        short = isinstance(vector.extent, int) and vector.extent <= TASK_ELEMENTS
        if not others and not (parts and short):
            self.loops.flat(vector, body)
        elif parts or len(others) < 2:
            with self.loops.rows(others, vector.extent):
                self._vectors(vector, parts, body)
        else:
            self._emit_map_in_parts(others, vector, body)

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
        return len(collect(pairs, self.nest.stored, set(self.reductions)))

    def _vectors(
        self, axis: Axis, parts: Sequence[tuple[int, int]], body: Callable[[], None]
    ) -> None:
        for part in parts or (None,):
            self.loops.vectors(axis, body, part)

    def _emit_map_in_parts(
        self, others: Sequence[Axis], vector: Axis, body: Callable[[], None]
    ) -> None:
        """Emit the map, by parts of the axis before the vector's if these are many: stacked
        pieces."""
        *rest, last = others
        parts = self._parts(last)
        if len(parts) < MANY_BRANCHES:
            with self.loops.rows(others, vector.extent):
                self.loops.vectors(vector, body)
            return
        with self.loops.rows(rest, last.extent * vector.extent):
            for part in parts:
                with self.loops.nested([last], part):
                    self.loops.vectors(vector, body)

    # ---- rows: the vector runs along the last inner axis ---------------------------------------

    def _passes(self) -> list[list[Node]]:
        nodes = [value.node for value in self.reductions if value.node is not None]
        upstream = {node: self._upstream(node) for node in nodes}
        ordered = sorted(nodes, key=lambda node: len(upstream[node].intersection(nodes)))
        return levels(ordered, lambda node, other: other in upstream[node])

    def _upstream(self, node: Node) -> set[Node]:
        found: set[Node] = set()
        pending = list(node.operands)
        while pending:
            value = pending.pop()
            if value.node is None or value.node in found or self.e.stored(value) is not None:
                continue
            found.add(value.node)
            pending += value.node.operands
        return found

    def _emit_rows(self) -> None:
        passes = self._passes()
        fold = Fold(self.e, self.loops, self.group, self.reductions)
        spill, size = self._plan_spill(passes), count(self.inner)
        short = isinstance(size, int) and size <= MOST_TOGETHER
        for loop in self.loops.rows_together(self.outer, size, 2 if short else 1):
            with loop as places:
                self._emit_passes(passes, fold, self._rows(places, spill))

    def _emit_passes(self, passes: list[list[Node]], fold: Fold, rows: list[_Row]) -> None:
        for number, nodes in enumerate(passes):
            # The second pass reads what is in the cache, and does not write past it yet.
            ahead = number == min(1, len(passes) - 1)
            reductions = [Reduction(node) for node in nodes]
            for row in rows:
                with self._in_row(row, number):
                    self._pass(fold, number, reductions, row, ahead)
        for row in rows:
            with self._in_row(row, len(passes)):
                self._finish_row()

    def _rows(self, places: Sequence[Mapping[str, Dim]], spill: Spill | None) -> list[_Row]:
        if spill is None or len(places) == 1:
            return [_Row(place, spill) for place in places]
        apart = ceildiv(count(self.inner), self.lanes) * self.lanes
        self.e.builder.kernel.scratch = len(places) * apart * spill.location.dtype.compute.bytes
        return [_Row(place, spill.further(n * apart)) for n, place in enumerate(places)]

    @contextmanager
    def _in_row(self, row: _Row, number: int) -> Generator[None]:
        """Emit pass `number` over this row inside."""
        self.loops.env.update(row.place)
        spill = row.spill
        if spill is not None and spill.first_pass < number:
            self.e.scratch[spill.value] = spill.location
        elif spill is not None:
            self.e.scratch.pop(spill.value, None)
        with self.e.block(row.known):
            yield

    def _pass(
        self, fold: Fold, number: int, reductions: list[Reduction], row: _Row, ahead: bool
    ) -> None:
        now = row.spill if row.spill is not None and row.spill.first_pass == number else None
        beside = self._ahead(row.spill is not None) if ahead else None
        results = fold.along_inner(self.inner, reductions, now, beside)
        for reduction, registers in zip(reductions, results, strict=True):
            fold.finish(reduction, registers)

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
            step, count = down[0], location.elements
            if along[0] != 1 or not isinstance(step, int) or not isinstance(count, int):
                continue
            bytes = step * location.dtype.bytes
            far = count * location.dtype.bytes >= self.schedule.far_bytes
            if far and ROW_BYTES[0] <= bytes <= ROW_BYTES[1]:
                rows = 0 if stores else 2 if bytes <= ROW_BYTES[1] // 4 else 1
                place = access.expression + step * rows
                places.append((location, place, "out" if stores else "in"))

        def ask() -> None:
            for location, place, use in dict.fromkeys(places):
                self.e.prefetch(location, recombine(substitute(place, self.loops.env)), use)

        return ask if places else None

    def _finish_row(self) -> None:
        inner = {axis.name for axis in self.group.inner}
        for value, index in self.group.internal.items():
            # What a whole row shares is computed once, outside the loop over its elements.
            shared = not used_axes(index) & inner and value not in self.reductions
            if shared and in_range(index, value.shape):
                self.e.element(value, self.loops.at(index))
        self._store_roots(self.row_roots)
        if self.full_roots and not self.inner:
            self._store_roots(self.full_roots)
        elif self.full_roots:
            with self.loops.nested(self.inner[:-1]):
                last = self.inner[-1]
                self._vectors(last, self._parts(last), lambda: self._store_roots(self.full_roots))

    def _plan_spill(self, passes: Sequence[Sequence[Node]]) -> Spill | None:
        """Plan to keep a value that several passes need in scratch, if the row is small and
        computing it each time is slower."""
        row = extent([self.group.extents[axis.name] for axis in self.group.inner])
        strides = row_major([self.group.extents[axis.name] for axis in self.group.inner])
        by_axis = {a.name: s for a, s in zip(self.group.inner, strides, strict=True)}
        for value, index in self.group.internal.items():
            dims = _scratch_strides(index, by_axis)
            if value in self.reductions:
                continue
            users = self._passes_using(value, passes)
            if not self.nest.costs.keeps(value, row, len(users)):
                continue
            if users[0] == len(passes) or dims is None or not any(dims):
                continue
            if not in_range(index, value.shape):
                continue
            size = self._row_bytes(value)
            if isinstance(size, int) and size > MAX_SPILL_BYTES:
                continue
            self.e.builder.kernel.scratch = size
            location = ScratchLocation(value.dtype, dims)
            return Spill(value, index, location, users[0])
        return None

    def _row_bytes(self, value: Value) -> Dim:
        extents = (self.group.extents[axis.name] for axis in self.group.inner)
        return product(extents) * value.dtype.compute.bytes

    def _passes_using(self, value: Value, passes: Sequence[Sequence[Node]]) -> list[int]:
        """Return the numbers of the passes that compute this value; the last pass stores."""
        using = [
            number
            for number, nodes in enumerate(passes)
            if any(
                value.node in self._upstream(node) - self._behind_reductions(node) for node in nodes
            )
        ]
        for root in self.full_roots:
            node = root.node
            direct = set() if node is None else self._upstream(node) - self._behind_reductions(node)
            if root is value or value.node in direct:
                using.append(len(passes))
                break
        return using

    def _behind_reductions(self, node: Node) -> set[Node]:
        """Return the nodes that `node` needs through other reductions only."""
        direct: set[Node] = set()
        pending = list(node.operands)
        while pending:
            value = pending.pop()
            if value.node is None or value.node in direct or value in self.reductions:
                continue
            direct.add(value.node)
            if self.e.stored(value) is None:
                pending += value.node.operands
        return self._upstream(node) - direct

    # ---- columns: the vector runs along an outer axis ------------------------------------------

    def _emit_columns(self) -> None:
        vector = self.schedule.vector
        assert vector is not None
        others = [axis for axis in self.outer if axis is not vector]
        fold = Fold(self.e, self.loops, self.group, self.reductions)
        parts = self._parts(vector) if others else ()
        if parts:
            with self.loops.rows(others, count(self.inner) * vector.extent):
                for part in parts:
                    self._emit_columns_of(fold, vector, *part)
            return
        side_by_side = self._side_by_side(vector)
        width = self.lanes * side_by_side
        blocks = ceildiv(vector.extent, width)
        block = Axis(self.e.builder.fresh_symbol("c", 0, blocks - 1), blocks)
        with self.loops.rows([*others, block], count(self.inner) * width):
            first = self.loops.env[block.name] * width
            columns = [
                self._column(vector, first + number * self.lanes, width)
                for number in range(side_by_side)
            ]
            self._fold_columns(fold, columns)

    def _emit_columns_of(self, fold: Fold, vector: Axis, first: int, end: int) -> None:
        """Emit a part of the axis: as many vectors together as allowed, then the rest, whose last
        vector repeats some elements of the one before it."""
        lanes, whole = self.lanes, (end - first) // self.lanes
        runs, left = divmod(whole, MOST_COLUMNS)
        if runs:
            width = lanes * MOST_COLUMNS
            with self.loops.b.loop(0, runs, prefix="c") as loop, self.e.block():
                at = first + loop.index * width
                self._fold_columns(
                    fold, [Column(vector, at + n * lanes, None) for n in range(MOST_COLUMNS)]
                )
        rest = first + (whole - left) * lanes
        columns = [Column(vector, rest + n * lanes, None) for n in range(left)]
        if whole * lanes != end - first:
            if whole:
                columns.append(Column(vector, end - lanes, None))
            else:
                columns.append(
                    Column(vector, first, self.loops.tail_mask(end - first), end - first)
                )
        if columns:
            with self.e.block():
                self._fold_columns(fold, columns)

    def _fold_columns(self, fold: Fold, columns: Sequence[Column]) -> None:
        for nodes in self._passes():
            fold.along_outer(self.inner, [Reduction(node) for node in nodes], columns)
        self._store_columns(fold, columns)

    def _side_by_side(self, vector: Axis) -> int:
        """Return the vectors to take through the inner loops together: whole runs of memory."""
        if not isinstance(vector.extent, int):
            return 1
        whole = max(1, vector.extent // self.lanes)
        return next(n for n in (MOST_COLUMNS, 2, 1) if n <= whole)

    def _column(self, vector: Axis, start: Dim, width: int) -> Column:
        if vector.extent % width == 0:
            return Column(vector, start, None)
        return Column(vector, start, self.loops.tail_mask(vector.extent - start))

    def _store_columns(self, fold: Fold, columns: Sequence[Column]) -> None:
        for column in columns:
            with fold.column(column):
                self._store_roots(self.row_roots)
        if self.full_roots:
            with self.loops.nested(self.inner):
                for column in columns:
                    with fold.column(column):
                        self._store_roots(self.full_roots)


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
