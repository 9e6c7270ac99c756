"""Costs of computing, writing and reading values: the basis for storing a value or recomputing it.

Costs are nanoseconds of one core, by the rates of `Machine`. Bytes cost by the cache level
into which all of them fit, for what one kernel writes another one reads later. With

    computing    vector operations of an element / lanes, for each time that one is computed
    passing      bytes at the rate of their level, for each time that they go to or from memory
    reading      passing what the value is computed from, the leaves that are in memory

a value of `n` elements that `r` kernels need, and that they would compute `t` times altogether, is
computed again by each of them where

    computing(t) + r reading   <=   computing(n) + reading + passing (1 + r')

with r' kernels that take it from memory: all but the one that computes and stores it on the way, or
all of them if none can, and then there is a launch more.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.sizes import size_hint

MOST_COPIES = 48
"""Operations that are written out again in one kernel to spare a value: code has its cost too."""

_MOST_LEAVES = 8
"""So many leaves of a value are told apart. With more, reading it again never pays."""


@dataclass(frozen=True)
class Alternatives:
    """Nanoseconds of a value's ways: every reader may `recompute` it, one of them `materialise` it
    for all, or a `separate_kernel` do that."""

    recompute: float
    materialise: float
    separate_kernel: float


class Costs:
    """Estimates for the values of one graph. Symbolic sizes are taken for likely ones.

    operations   of an element of each value, from the leaves; what a row shares, once for it
    """

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self._machine = machine
        self._lanes = machine.isa.lanes(F32)
        self.operations: dict[Value, float] = {}
        self._leaves: dict[Value, tuple[Value, ...]] = {}
        self._uses: dict[Value, int] = {}
        for node in graph.nodes:
            for operand in node.operands:
                self._uses[operand] = self._uses.get(operand, 0) + 1
        for node in graph.nodes:
            self._measure(node)

    def _measure(self, node: Node) -> None:
        definition = OPS[node.op]
        own, leaves = 0.0, dict[Value, None]()
        if definition.elementwise:
            own += definition.cost
            for operand in dict.fromkeys(node.operands):
                if self._likely_stored(operand):
                    leaves[operand] = None
                else:
                    own += self.operations[operand]
                    leaves.update(dict.fromkeys(self._leaves[operand]))
            if node.op == "expand" and node.operands[0].shape[-1:] in ((), (1,)):
                own /= extent(node.result.shape[-1:])
        for result in node.results:
            self.operations[result] = own
            self._leaves[result] = tuple(leaves)[:_MOST_LEAVES]

    def _likely_stored(self, value: Value) -> bool:
        """Return whether a value is stored, or will be, being expensive and read by several."""
        node = value.node
        if node is None or not OPS[node.op].elementwise:
            return True
        several = self._uses[value] > 1 and self.operations[value] > 0
        return several and self.keeps(value, elements(value), 2)

    def computing(self, value: Value, times: float) -> float:
        """Return the nanoseconds of computing that many elements from the leaves."""
        return self._machine.time(times * self.operations.get(value, 0) / self._lanes, {})

    def reading(self, value: Value) -> float:
        """Return the nanoseconds of reading the leaves of all elements once."""
        count = elements(value)
        return sum(
            self._machine.passing(min(elements(leaf), count) * leaf.dtype.bytes)
            for leaf in self._leaves.get(value, ())
        )

    def alternatives(self, value: Value, times: float, readers: int) -> Alternatives:
        """Return the costs of a value that would be computed `times` times by that many kernels."""
        passing, reading = self._machine.passing(size(value)), self.reading(value)
        once = self.computing(value, elements(value)) + reading
        return Alternatives(
            recompute=self.computing(value, times) + readers * reading,
            materialise=once + readers * passing,
            separate_kernel=once + (1 + readers) * passing + self._machine.launch_ns,
        )

    def keeps(self, value: Value, count: float, uses: int) -> bool:
        """Return whether storing `count` elements that are used `uses` times, with their operands
        at hand, is cheaper than computing them each time."""
        passing = self._machine.passing(count * value.dtype.compute.bytes)
        return (uses - 1) * self.computing(value, count) > uses * passing


def elements(value: Value) -> int:
    """Return the number of elements of a value, with hints for symbolic sizes."""
    return extent(value.shape)


def extent(sizes: tuple[Dim, ...] | list[Dim]) -> int:
    """Return the product of these dims, with hints for symbolic ones; at least 1."""
    count = 1
    for size in sizes:
        count *= size if isinstance(size, int) and size > 0 else size_hint(size)
    return count


def size(value: Value) -> int:
    """Return the bytes of a value, with hints for symbolic sizes."""
    return elements(value) * value.dtype.bytes
