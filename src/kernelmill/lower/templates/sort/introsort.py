"""The C++ standard library's `sort`, `nth_element` and `partial_sort` of one row in scratch.

They compare and move as libstdc++ does (bits/stl_algo.h, bits/stl_heap.h), since that decides the
order of elements that compare equal.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, maximum, minimum
from kernelmill.core.dtype import I64, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, If, Value, VType

STACK_WORDS = 3 * 128
"""Words at the beginning of scratch: pieces of a row that wait to be sorted, at most two for each
bit of its size, as first, last and depth."""

_LEAST_SORTED = 16
"""Pieces of so many elements are left to the insertion sort at the end."""

_LEAST_SELECTED = 3
_INDEX = VType(I64)


def ordered_bits(b: KernelBuilder, element: Value, key: DType) -> Value:
    """Return an integer of type `key` that compares as the element does, NaN above all else."""
    dtype = element.type.dtype
    if not dtype.is_float:
        return b.cast(element, key)
    largest = (1 << (key.bits - 1)) - 1
    # The sum with 0.0 turns -0.0 into 0.0.
    bits = b.op("bitcast", b.op("add", element, 0.0), dtype=key)
    bits = b.op("select", b.op("lt", bits, 0), b.op("xor", bits, largest), bits)
    known = b.op("eq", element, element)
    rest = b.op("splat", largest, dtype=key, lanes=element.type.lanes)
    return b.op("select", known, bits, rest)


@dataclass(frozen=True)
class Item:
    """An element's key, and where it was (i64)."""

    key: Value
    position: Value


class Items:
    """A row in scratch: its keys from element `keys` of scratch on, its positions from element
    `positions` of i64 on, `size` of each. `ties` tells whether equal keys compare by position."""

    def __init__(
        self, builder: KernelBuilder, key: DType, keys: Dim, positions: Dim, size: Dim,
        ties: bool | Value,
    ) -> None:  # fmt: skip
        self.b, self.key, self.size, self.ties = builder, key, size, ties
        self._keys, self._positions = keys, positions

    def at(self, place: Value) -> Expr:
        """Return a register as a place in the row."""
        return self.b.let(place, 0, self.size - 1)

    def get(self, place: Dim) -> Item:
        return Item(
            self.b.load(SCRATCH, self._keys + place, self.key),
            self.b.load(SCRATCH, self._positions + place, I64),
        )

    def set(self, place: Dim, item: Item) -> None:
        self.b.store(SCRATCH, self._keys + place, item.key)
        self.b.store(SCRATCH, self._positions + place, item.position)

    def set_vector(self, place: Dim, keys: Value, positions: Value, mask: Value | None) -> None:
        """Store neighbours from `place` on."""
        self.b.store(SCRATCH, self._keys + place, keys, mask)
        self.b.store(SCRATCH, self._positions + place, positions, mask)

    def less(self, a: Item, b: Item) -> Value:
        """Emit a bool: whether one item comes before the other."""
        e = self.b
        below = e.op("lt", a.key, b.key)
        if self.ties is False:
            return below
        first = e.op("and", e.op("eq", a.key, b.key), e.op("lt", a.position, b.position))
        if isinstance(self.ties, Value):
            first = e.op("and", first, self.ties)
        return e.op("or", below, first)

    def either(self, condition: Value, a: Item, b: Item) -> Item:
        e = self.b
        key = e.op("select", condition, a.key, b.key)
        return Item(key, e.op("select", condition, a.position, b.position))


class Sorter:
    """The algorithms. Places are dims, counted from the row's first element."""

    def __init__(self, items: Items) -> None:
        self.items, self.b = items, items.b

    # ---- the whole of them ----------------------------------------------------------------------

    def sort(self, size: Dim) -> None:
        """Sort the first `size` elements as `sort` does."""
        if not isinstance(size, int) or size > _LEAST_SORTED:
            large = self.b.op("gt", self.b.index(size), _LEAST_SORTED)
            with self.b.when(large):
                self._cut_up(size)
        sorted_first = minimum(_LEAST_SORTED, size)
        self._insertion_sort(0, sorted_first)
        with self.b.loop(sorted_first, size, prefix="s") as loop:
            self._insert(loop.index)

    def select(self, nth: Dim, size: Dim) -> None:
        """Do `nth_element` on the first `size` elements, at least one."""
        b = self.b
        if isinstance(size, int) and size <= _LEAST_SELECTED:
            self._insertion_sort(0, size)
            return
        wanted, last = b.index(nth), b.index(size)
        carry = [(_INDEX, b.index(0)), (_INDEX, last), (_INDEX, self._depth(last))]
        with b.repeat(carry) as loop:
            first, last, depth = loop.carried
            goes = b.op("gt", b.op("sub", last, first), _LEAST_SELECTED)
            with b.when(goes) as large:
                with b.when(b.op("gt", depth, 0)) as cut_again:
                    cut = self._partition(self.items.at(first), self._end(last))
                    right = b.op("le", cut, wanted)
                    part = (b.op("select", right, cut, first), b.op("select", right, last, cut))
                with b.otherwise(cut_again):
                    begin, end = self.items.at(first), self._end(last)
                    self._heap_select(begin, nth + 1, end)
                    self._swap(begin, nth)
                found = self._results(cut_again, part, (last, last))
                left = b.op("sub", depth, 1)
            found = self._results(large, (*found, left), (first, last, depth))
            loop.again(goes, *found)
        first, last, _ = loop.results
        self._insertion_sort(self._end(first), self._end(last))

    def make_heap(self, first: Dim, size: Dim) -> None:
        """Make a heap of `size` elements from `first` on, the last in order on top."""
        b = self.b
        length = b.index(size)
        with b.loop(0, size // 2, prefix="h") as loop:
            hole = size // 2 - 1 - loop.index
            item = self.items.get(first + hole)
            self.adjust_heap(first, b.index(hole), length, item)

    def adjust_heap(self, first: Dim, hole: Value, length: Value, item: Item) -> None:
        """Put `item` into a heap of `length` elements whose element number `hole` is free."""
        moved = self._only_child(first, self._sift_down(first, hole, length), length)
        place = self._sift_up(first, moved, hole, item)
        self.items.set(first + self.items.at(place), item)

    def sort_heap(self, first: Dim, size: Dim) -> None:
        """Sort the elements of a heap."""
        b, items = self.b, self.items
        with b.loop(1, size, prefix="h") as loop:
            last = size - loop.index
            item = items.get(first + last)
            items.set(first + last, items.get(first))
            self.adjust_heap(first, b.index(0), b.index(last), item)

    # ---- sort -----------------------------------------------------------------------------------

    def _cut_up(self, size: Dim) -> None:
        """Cut the row into pieces of up to 16 elements, all of one before all of the next."""
        b, items = self.b, self.items
        whole = b.index(size)
        self._push(b.index(0), b.index(0), whole, self._depth(whole))
        with b.repeat([(_INDEX, b.index(1))]) as pieces:
            top = b.op("sub", pieces.carried[0], 1)
            first, last, depth = self._top(top)
            begin = items.at(first)
            with b.repeat([(_INDEX, last), (_INDEX, depth), (_INDEX, top)]) as cuts:
                last, depth, top = cuts.carried
                goes = b.op("gt", b.op("sub", last, first), _LEAST_SORTED)
                with b.when(goes) as large:
                    left = b.op("sub", depth, 1)
                    with b.when(b.op("gt", depth, 0)) as cut_again:
                        cut = self._partition(begin, self._end(last))
                        self._push(top, cut, last, left)
                        more = b.op("add", top, 1)
                    with b.otherwise(cut_again):
                        size = self._end(last) - begin
                        self.make_heap(begin, size)
                        self.sort_heap(begin, size)
                    # What a heap has sorted is as if there were nothing.
                    cut, more = self._results(cut_again, (cut, more), (first, top))
                cuts.again(goes, *self._results(large, (cut, left, more), (last, depth, top)))
            waiting = cuts.results[2]
            pieces.again(b.op("gt", waiting, 0), waiting)

    def _push(self, slot: Value, *piece: Value) -> None:
        place = self.b.let(slot, 0, STACK_WORDS // 3 - 1) * 3
        for word, value in enumerate(piece):
            self.b.store(SCRATCH, place + word, value)

    def _top(self, slot: Value) -> tuple[Value, Value, Value]:
        place = self.b.let(slot, 0, STACK_WORDS // 3 - 1) * 3
        first, last, depth = (self.b.load(SCRATCH, place + word, I64) for word in range(3))
        return first, last, depth

    def _depth(self, size: Value) -> Value:
        """Return how often a piece is cut before a heap sorts it: 2 * log2 of its size."""
        b = self.b
        with b.repeat([(_INDEX, size), (_INDEX, b.index(-2))]) as loop:
            left, twice = loop.carried
            left = b.op("shr", left, 1)
            loop.again(b.op("gt", left, 0), left, b.op("add", twice, 2))
        return loop.results[1]

    def _insertion_sort(self, first: Dim, last: Dim) -> None:
        b, items = self.b, self.items
        with b.loop(first + 1, last, prefix="s") as loop:
            item = items.get(loop.index)
            low = b.index(first)
            with b.repeat([(_INDEX, b.index(loop.index))]) as shift:
                place = shift.carried[0]
                at = items.at(place)
                before = items.get(maximum(at - 1, first))
                moves = b.op("and", b.op("gt", place, low), items.less(item, before))
                with b.when(moves):
                    items.set(at, before)
                shift.again(moves, b.op("select", moves, b.op("sub", place, 1), place))
            items.set(items.at(shift.results[0]), item)

    def _insert(self, last: Dim) -> None:
        """Put an element into the order of those before it, of which one is not after it."""
        b, items = self.b, self.items
        item = items.get(last)
        with b.repeat([(_INDEX, b.index(last))]) as shift:
            at = items.at(shift.carried[0])
            before = items.get(at - 1)
            moves = items.less(item, before)
            with b.when(moves):
                items.set(at, before)
            place = shift.carried[0]
            shift.again(moves, b.op("select", moves, b.op("sub", place, 1), place))
        items.set(items.at(shift.results[0]), item)

    def _partition(self, first: Dim, last: Dim) -> Value:
        """Cut at the median of three elements, put first; return where the right part begins."""
        b, items = self.b, self.items
        pivot = self._median_first(first, last)
        with b.repeat([(_INDEX, b.index(first + 1)), (_INDEX, b.index(last))]) as loop:
            left, right = loop.carried
            with b.repeat([(_INDEX, left)]) as up:
                place = up.carried[0]
                passes = items.less(items.get(items.at(place)), pivot)
                up.again(passes, b.op("select", passes, b.op("add", place, 1), place))
            with b.repeat([(_INDEX, right)]) as down:
                place = b.op("sub", down.carried[0], 1)
                down.again(items.less(pivot, items.get(items.at(place))), place)
            left, right = up.results[0], down.results[0]
            apart = b.op("lt", left, right)
            with b.when(apart):
                self._swap(items.at(left), items.at(right))
            loop.again(apart, b.op("select", apart, b.op("add", left, 1), left), right)
        return loop.results[0]

    def _median_first(self, first: Dim, last: Dim) -> Item:
        """Exchange the first element and the median of the second, the middle and the last one."""
        b, items = self.b, self.items
        places = (first + 1, first + (last - first) // 2, last - 1)
        second, middle, end = (items.get(place) for place in places)
        rising = items.less(second, middle)
        below_end = items.less(second, end)
        inner = items.less(middle, end)
        at = [b.index(place) for place in places]
        upper = b.op("select", inner, at[1], b.op("select", below_end, at[2], at[0]))
        lower = b.op("select", below_end, at[0], b.op("select", inner, at[2], at[1]))
        median = items.at(b.op("select", rising, upper, lower))
        pivot = items.get(median)
        items.set(median, items.get(first))
        items.set(first, pivot)
        return pivot

    def _swap(self, a: Dim, b: Dim) -> None:
        first, second = self.items.get(a), self.items.get(b)
        self.items.set(a, second)
        self.items.set(b, first)

    # ---- heaps ----------------------------------------------------------------------------------

    def _heap_select(self, first: Dim, middle: Dim, last: Dim) -> None:
        """Make [first, middle) a heap of the elements that come first."""
        b, items = self.b, self.items
        size = middle - first
        self.make_heap(first, size)
        with b.loop(middle, last, prefix="h") as loop:
            item, worst = items.get(loop.index), items.get(first)
            with b.when(items.less(item, worst)):
                items.set(loop.index, worst)
                self.adjust_heap(first, b.index(0), b.index(size), item)

    def _sift_down(self, first: Dim, hole: Value, length: Value) -> Value:
        """Move the later of two children up, as long as two exist."""
        b, items = self.b, self.items
        end = b.op("shr", b.op("sub", length, 1), 1)
        with b.repeat([(_INDEX, hole)]) as loop:
            place = loop.carried[0]
            goes = b.op("lt", place, end)
            with b.when(goes) as inside:
                child = b.op("add", b.op("mul", place, 2), 2)
                at = first + items.at(child)
                right, left = items.get(at), items.get(at - 1)
                before = items.less(right, left)
                items.set(first + items.at(place), items.either(before, left, right))
                child = b.op("select", before, b.op("sub", child, 1), child)
            loop.again(goes, *self._results(inside, (child,), (place,)))
        return loop.results[0]

    def _only_child(self, first: Dim, hole: Value, length: Value) -> Value:
        """Move up the child of the one element that has only one."""
        b, items = self.b, self.items
        even = b.op("eq", b.op("and", length, 1), 0)
        parent = b.op("shr", b.op("sub", length, 2), 1)
        with b.when(b.op("and", even, b.op("eq", hole, parent))) as single:
            child = b.op("add", b.op("mul", hole, 2), 1)
            items.set(first + items.at(hole), items.get(first + items.at(child)))
        (place,) = self._results(single, (child,), (hole,))
        return place

    def _sift_up(self, first: Dim, hole: Value, top: Value, item: Item) -> Value:
        """Move parents that come before `item` down; return the place for it."""
        b, items = self.b, self.items
        with b.repeat([(_INDEX, hole)]) as loop:
            place = loop.carried[0]
            parent = b.op("shr", b.op("sub", place, 1), 1)
            above = items.get(first + items.at(b.op("max", parent, 0)))
            moves = b.op("and", b.op("gt", place, top), items.less(above, item))
            with b.when(moves):
                items.set(first + items.at(place), above)
            loop.again(moves, b.op("select", moves, parent, place))
        return loop.results[0]

    # ---- parts ----------------------------------------------------------------------------------

    def _end(self, place: Value) -> Expr:
        """Return a register as a place in the row or behind it."""
        return self.b.let(place, 0, self.items.size)

    def _results(
        self, branch: If, then: tuple[Value, ...], otherwise: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Return the values of both sides of a branch that was built as its results."""
        results = tuple(self.b.fresh(value.type.dtype) for value in then)
        branch.results, branch.then_yields, branch.otherwise_yields = results, then, otherwise
        return results
