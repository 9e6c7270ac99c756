"""Callbacks that emit code, by which templates read operands and store results."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims

LoadElement = Callable[[KernelBuilder, Dims, Dim, Dims, Lane | None], Value]
"""`load(builder, batch, outer, k, lane)`: one element, or with a lane the vector of elements along
the lane's symbol, which occurs in `outer` or in the last of `k`. Of type `Contraction.element`."""

PrefetchElement = Callable[[Dims, Dim, Dim], None]
"""`prefetch(batch, outer, number)`: says that the line of an element will be read soon, of that one
which is so many elements after the first of `outer`."""

StoreElement = Callable[[KernelBuilder, Dims, Dim, Dim, Lane, Value], None]
"""`store(builder, batch, m, n, lane, sums)`: the fused epilogue and the store of one vector. The
lane's symbol occurs in `n`; `sums` has the accumulator's dtype and `lane.count` lanes."""
