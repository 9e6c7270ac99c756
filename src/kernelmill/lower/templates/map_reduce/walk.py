"""The loops of maps and reductions: tasks, rows, inner loops, vectors with a masked rest.

A body returns the accumulators that its loops carry; those of a map carry none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial, reduce

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, provably_nonnegative, substitute
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import views
from kernelmill.lower.elements.domain import TASK_ELEMENTS, Axis, count, split_tasks
from kernelmill.lower.elements.emitter import Emitter, Known, ScratchLocation
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.templates.map_reduce.reduction import RUN, FoldSums, shares

WAYS = 4
"""Accumulators side by side, so that an addition need not wait for the one before it."""

FEW = 16
"""Elements of loops inside that do not make a run of their own."""

State = Sequence[Register]

Body = Callable[[State, Register | None], State]
"""`body(state, mask)`: emits the current element, of a vector in the lanes of the mask; gives the
accumulators."""

Pass = Callable[[Dim, State], State]
"""`turn(index, state)`: emits a pass of a loop."""


@dataclass
class Place:
    """A row, or a vector along an outer axis: its positions and lanes, what is known of it, and
    its values that are kept in scratch, from `offset` on."""

    positions: Mapping[str, Dim]
    lane: Lane | None = None
    known: Known = field(default_factory=lambda: Known())
    scratch: dict[Value, ScratchLocation] = field(default_factory=dict[Value, ScratchLocation])
    offset: Dim = 0


class Walk:
    """Opens loops in one kernel. `mapping` rewrites the group's axes to those that are looped;
    `env` maps each of these to its current position, an index expression over the symbols of the
    loops that are open. Loops that carry nothing are cut into the `parts` of their axis."""

    def __init__(self, emitter: Emitter, lanes: int, mapping: Mapping[str, Dim]) -> None:
        self.e, self.b = emitter, emitter.builder
        self.lanes = lanes
        self.mapping = mapping
        self.parts: dict[str, Sequence[tuple[int, int]]] = {}
        self.env: dict[str, Dim] = {}
        self.task: Dim = 0
        self.nothing = FoldSums(self.b, (), lanes)

    def at(self, index: Index) -> Index:
        """Return a domain index at the current position."""
        return tuple(substitute(substitute(i, self.mapping), self.env) for i in index)

    # ---- positions -----------------------------------------------------------------------------

    def place(self, axis: Axis, start: Dim, rest: Dim | None = None) -> Place:
        """Return the vector at `start`, of which only the first `rest` lanes exist, if given."""
        last = rest - 1 if isinstance(rest, int) else self.lanes - 1
        lane = Lane(self.b.fresh_symbol("l", 0, last), self.lanes)
        if rest is not None:
            mask = self.b.op("lane_mask", self.b.index(rest), lanes=self.lanes)
            lane = replace(lane, mask=mask)
        return Place({axis.name: start + lane.index}, lane)

    def places(self, axis: Axis, start: Dim, number: int, end: Dim | None = None) -> list[Place]:
        """Return that many vectors side by side, masked where they are beyond `end`, if given."""
        starts = [start + n * self.lanes for n in range(number)]
        return [self.place(axis, at, None if end is None else end - at) for at in starts]

    @contextmanager
    def inside(self, place: Place, keep: bool = False) -> Generator[None]:
        """Go to a place; with `keep` the registers made there are known to it from then on."""
        self.env.update(place.positions)
        self.e.scratch = place.scratch
        known = place.known if keep else dict(place.known)
        with self.e.block(known) if place.lane is None else self.e.lanes(place.lane, known):
            yield

    # ---- tasks ---------------------------------------------------------------------------------

    def set_tasks(self, tasks: Dim) -> None:
        """Set the number of tasks of the kernel; `task` becomes the number of the running one."""
        self.b.set_tasks(tasks)
        self.task = self.b.task if tasks != 1 else 0

    def rows(
        self, axes: Sequence[Axis], elements: Dim, body: Callable[[list[Place]], object],
        together: int = 1,
    ) -> None:  # fmt: skip
        """Spread the leading `axes` over tasks, loop over the others, and call `body` with a row of
        so many elements, or several at a time: then those that are left come one by one."""
        split = split_tasks(axes, elements)
        sizes = split.rows, split.total
        if split.count < len(axes) or any(isinstance(s, int) and s < together for s in sizes):
            together = 1
        elif split.rows != split.total:
            split = replace(split, rows=split.rows // together * together)
        self.set_tasks(split.tasks)
        spread, rest = axes[: split.count], axes[split.count :]

        def visit(row: Dim, number: int = 1) -> None:
            places = [Place(_positions(spread, row + n)) for n in range(number)]
            self.env.update(places[0].positions)
            # These loops carry nothing: the body runs, and the state stays as it is.
            self.loops(rest, False, lambda state, _: (body(places), state)[1], self.nothing)

        if split.rows == 1 or not spread:
            visit(self.task)
            return
        start = self.task * split.rows
        stop = minimum(start + split.rows, split.total)
        whole = isinstance(split.total, int) and split.total % together == 0
        runs = [(start, stop if whole else stop - (together - 1), together)]
        if not whole and together > 1:
            runs.append((start + (stop - start) // together * together, stop, 1))
        for first, end, step in runs:
            high = split.total - step
            with self.b.loop(first, end, step, prefix="r", high=high) as loop, self.e.block():
                visit(loop.index, step)

    def flat(self, axis: Axis, body: Body) -> None:
        """Loop over a single axis: tasks are runs of whole vectors; the last also has the rest."""
        lanes, blocks = self.lanes, axis.extent // self.lanes
        run = max(1, TASK_ELEMENTS // lanes)
        tasks = ceildiv(axis.extent, run * lanes)
        self.set_tasks(tasks)
        if blocks != 0:
            start = self.task * run
            stop = minimum(start + run, blocks)
            with self.b.loop(start, stop, prefix="v", high=blocks - 1) as loop:
                self._lanes(axis, loop.index * lanes, (), body)
        rest = axis.extent - blocks * lanes
        if rest != 0:
            last = self.b.op("eq", self.b.index(self.task), self.b.index(tasks - 1))
            with self.b.when(last), self.e.block():
                self._lanes(axis, blocks * lanes, (), body, rest)

    # ---- loops inside a task -------------------------------------------------------------------

    def loops(self, axes: Sequence[Axis], vectors: bool, body: Body, sums: FoldSums) -> State:
        """Loop over the axes, with `vectors` along the last one; return what is folded in then."""
        if not vectors:
            return self._nest(axes, sums, sums.start(), lambda state: body(state, None))
        *others, last = axes
        steps, leaf = ceildiv(last.extent, self.lanes), partial(self._vectors, last, sums, body)
        return self._nest(others, sums, sums.start(), leaf, steps)

    def _nest(
        self, axes: Sequence[Axis], sums: FoldSums, state: State, leaf: Callable[[State], State],
        steps: Dim = 1,
    ) -> State:  # fmt: skip
        """Loop over `axes` and carry `state` through `leaf`, which folds in so many elements one
        after the other."""
        if not axes:
            return leaf(state)
        axis, *rest = axes
        inside = count(rest) * steps
        few = isinstance(inside, int) and inside <= FEW
        apart = not few and sums.are_long(axis.extent * inside)
        fresh = sums.start() if apart else ()

        def turn(index: Dim, carried: State) -> State:
            with self.e.block():
                self.env[axis.name] = index
                if not apart:
                    return self._nest(rest, sums, carried, leaf, steps)
                return sums.join(carried, self._nest(rest, sums, fresh, leaf, steps))

        for part in self._parts(axis, state):
            state = self._runs(*part, sums, state, turn, "i", inside if few else 1)
        return state

    def _parts(self, axis: Axis, state: State) -> Sequence[tuple[Dim, Dim]]:
        return ((0, axis.extent),) if state else self.parts.get(axis.name) or ((0, axis.extent),)

    def _runs(
        self, start: Dim, stop: Dim, sums: FoldSums, state: State, turn: Pass, prefix: str,
        elements: Dim = 1,
    ) -> State:  # fmt: skip
        """A loop that carries `state` through `turn`, which folds in so many elements one after the
        other: in runs where it is a long sum."""
        if not sums.are_long((stop - start) * elements):
            return self._turns(start, stop, state, turn, prefix)
        assert isinstance(elements, int)
        run, fresh = RUN // elements, sums.start()

        def one(number: Dim, carried: State) -> State:
            first = start + number * run
            part = self._turns(first, minimum(first + run, stop), fresh, turn, prefix)
            return sums.join(carried, part)

        return self._turns(0, ceildiv(stop - start, run), state, one, "r")

    def _turns(self, start: Dim, stop: Dim, state: State, turn: Pass, prefix: str) -> State:
        with self.b.loop(start, stop, prefix=prefix, carry=state) as loop:
            loop.carry(*turn(loop.index, loop.carried))
        return loop.results

    def _vectors(self, axis: Axis, sums: FoldSums, body: Body, state: State) -> State:
        """Whole vectors along an axis, some side by side if they are many, then the rest."""
        for first, end in self._parts(axis, state):
            blocks, start = (end - first) // self.lanes, 0
            if state and (not isinstance(blocks, int) or blocks >= 2 * WAYS):
                state = self._ways(axis, blocks // WAYS, sums, state, body)
                start = blocks // WAYS * WAYS
            if blocks - start != 0:

                def turn(index: Dim, carried: State, first: Dim = first) -> State:
                    return self._lanes(axis, first + index * self.lanes, carried, body)

                state = self._turns(start, blocks, state, turn, "v")
            rest = end - first - blocks * self.lanes
            if rest != 0:
                state = self._rest(axis, end - rest, rest, state, body)
        return state

    def _rest(self, axis: Axis, start: Dim, rest: Dim, state: State, body: Body) -> State:
        """A masked vector. What its lanes share is loaded without a mask, and need not exist for an
        empty axis."""
        if provably_nonnegative(axis.extent - 1):
            return self._lanes(axis, start, state, body, rest)
        exists = self.b.op("gt", self.b.index(axis.extent), 0)
        with self.b.when(exists) as statement, self.e.block():
            statement.then_yields = tuple(self._lanes(axis, start, state, body, rest))
        statement.otherwise_yields = tuple(state)
        statement.results = tuple(self.b.fresh_of(register.type) for register in state)
        return statement.results

    def _ways(self, axis: Axis, passes: Dim, sums: FoldSums, state: State, body: Body) -> State:
        """Vectors side by side, each with accumulators of its own, that many times."""
        width = self.lanes * WAYS

        def turn(index: Dim, carried: State) -> State:
            return [
                register
                for way, own in enumerate(shares(carried, WAYS))
                for register in self._lanes(axis, index * width + way * self.lanes, own, body)
            ]

        states = [*state, *sums.times(WAYS - 1).start()]
        states = self._runs(0, passes, sums.times(WAYS), states, turn, "v")
        return reduce(sums.join, shares(states, WAYS))

    def _lanes(
        self, axis: Axis, start: Dim, state: State, body: Body, rest: Dim | None = None
    ) -> State:
        place = self.place(axis, start, rest)
        with self.inside(place):
            return body(state, place.lane and place.lane.mask)


def _positions(axes: Sequence[Axis], row: Dim) -> dict[str, Dim]:
    positions = views.unravel(row, [axis.extent for axis in axes])
    return dict(zip((axis.name for axis in axes), positions, strict=True))
