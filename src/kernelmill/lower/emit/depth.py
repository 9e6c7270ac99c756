"""The loops over k: several axes as a nest, with sums carried through all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, mod, product
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, size_hint
from kernelmill.lower.elements.views import ravel

Body = Callable[[Dims, list[Value]], Sequence[Value]]
"""`body(k, sums)`: emits what is done for one k and gives the new sums."""


@dataclass(frozen=True)
class Depth:
    """The reduction axes of a contraction; of the first one only [start, stop)."""

    axes: Dims
    start: Dim
    stop: Dim

    @staticmethod
    def whole(axes: Dims) -> Depth:
        """Return the depth with all of every axis."""
        return Depth(axes, 0, axes[0])

    @property
    def inner(self) -> Dim:
        """Number of k for each index of the first axis."""
        return product(self.axes[1:])

    @property
    def size(self) -> Dim:
        """Number of k in all."""
        return (self.stop - self.start) * self.inner

    @property
    def first(self) -> Depth:
        return Depth(self.axes[:1], self.start, self.stop)

    @property
    def paired(self) -> bool:
        """True if the last of several axes has size two. Such an axis is unrolled, so that code may
        depend on its index."""
        return len(self.axes) > 1 and self.axes[-1] == 2

    def is_pair(self, axis: int) -> bool:
        """Return whether this axis is the unrolled last axis of size two."""
        return self.paired and axis == len(self.axes) - 1

    def neighbours(self, k: Dims, count: int) -> list[Dims]:
        """Return the k of `count` indices of the first axis; another axis can be a pair only."""
        firsts = [k[0] + i for i in range(count)]
        return [(i, j) for i in firsts for j in (0, 1)] if self.paired else [(i,) for i in firsts]

    def number(self, k: Dims) -> Dim:
        """Return the row-major number of `k` among all of the axes."""
        return ravel(k, self.axes)

    def collapsed(self) -> Depth:
        """Return the same k as one axis."""
        inner = self.inner
        return Depth((self.axes[0] * inner,), self.start * inner, self.stop * inner)


def for_each_k(
    builder: KernelBuilder, depth: Depth, sums: list[Value], body: Body, step: int = 1
) -> list[Value]:
    """Loop over the k in row-major order, along the last axis by `step`; return the final sums.

    `step` need not divide the last axis: the last pass then reaches beyond its end.
    """
    return _nest(builder, depth, list(range(len(depth.axes))), step, sums, body, {})


def visit_along_k(
    builder: KernelBuilder, depth: Depth, step: int, body: Callable[[Dims], None]
) -> None:
    """Loop over the k in row-major order, along the last axis by `step`."""
    for_each_k(builder, depth, [], _without_sums(body), step)


def visit_each_k(builder: KernelBuilder, depth: Depth, body: Callable[[Dims], None]) -> None:
    """Loop over the k in the order that has the longest axis innermost."""
    order = sorted(
        range(len(depth.axes)), key=lambda axis: (depth.is_pair(axis), size_hint(depth.axes[axis]))
    )
    _nest(builder, depth, order, 1, [], _without_sums(body), {})


def _without_sums(body: Callable[[Dims], None]) -> Body:
    def visit(k: Dims, _: list[Value]) -> list[Value]:
        body(k)
        return []

    return visit


def _nest(
    builder: KernelBuilder,
    depth: Depth,
    order: list[int],
    step: int,
    sums: list[Value],
    body: Body,
    outer: dict[int, Dim],
) -> list[Value]:
    axis, *inner = order
    if not inner and step == 1 and depth.is_pair(axis):
        for half in range(2):
            sums = list(body(_point({**outer, axis: half}), sums))
        return sums
    start, stop = (depth.start, depth.stop) if axis == 0 else (0, depth.axes[axis])
    stride = 1 if inner else step
    last = stop - stride if mod(stop - start, stride) == 0 else None
    with builder.loop(start, stop, stride, sums, prefix="k", high=last) as loop:
        k = {**outer, axis: loop.index}
        carried = list(loop.carried)
        if inner:
            loop.carry(*_nest(builder, depth, inner, step, carried, body, k))
        else:
            loop.carry(*body(_point(k), carried))
    return list(loop.results)


def _point(k: dict[int, Dim]) -> Dims:
    return tuple(k[i] for i in range(len(k)))
