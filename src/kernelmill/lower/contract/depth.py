"""The loops over k: several axes as a nest, with sums carried through all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelmill.core.dim import Dim, product
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.contract.spec import Dims
from kernelmill.lower.views import ravel

Body = Callable[[Dims, list[Value]], Sequence[Value]]
"""`body(k, sums)`: emits what is done for one k and gives the new sums."""


@dataclass(frozen=True)
class Depth:
    """Reduction axes; of the first one only [start, stop)."""

    axes: Dims
    start: Dim
    stop: Dim

    @staticmethod
    def whole(axes: Dims) -> Depth:
        """All of every axis."""
        return Depth(axes, 0, axes[0])

    @property
    def inner(self) -> Dim:
        """How many k there are for each index of the first axis."""
        return product(self.axes[1:])

    @property
    def size(self) -> Dim:
        """How many k there are."""
        return (self.stop - self.start) * self.inner

    def number(self, k: Dims) -> Dim:
        """The row-major number of `k` among all of the axes."""
        return ravel(k, self.axes)

    def collapsed(self) -> Depth:
        """The same k as one axis."""
        inner = self.inner
        return Depth((self.axes[0] * inner,), self.start * inner, self.stop * inner)


def for_each_k(
    builder: KernelBuilder, depth: Depth, sums: list[Value], body: Body, step: int = 1
) -> list[Value]:
    """Loop over the k in row-major order, along the last axis by `step`; gives the final sums.

    `step` need not divide the last axis: the last pass then reaches beyond its end.
    """
    ranges = [(depth.start, depth.stop), *((0, size) for size in depth.axes[1:])]
    return _nest(builder, ranges, step, sums, body, ())


def _nest(
    builder: KernelBuilder,
    ranges: list[tuple[Dim, Dim]],
    step: int,
    sums: list[Value],
    body: Body,
    outer: Dims,
) -> list[Value]:
    (start, stop), *inner = ranges
    carry = [(value.type, value) for value in sums]
    with builder.loop(start, stop, 1 if inner else step, carry, prefix="k") as loop:
        k = (*outer, loop.index)
        carried = list(loop.carried)
        if inner:
            loop.carry(*_nest(builder, inner, step, carried, body, k))
        else:
            loop.carry(*body(k, carried))
    return list(loop.results)
