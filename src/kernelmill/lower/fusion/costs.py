"""Costs of computing, writing and reading values: the basis for storing a value or recomputing it.

Costs are nanoseconds of one core, by the rates of `Machine`. Bytes cost the rate of the cache level
that holds all of them, since one kernel writes what another reads later. With

    computing    vector operations of an element / lanes, for each computed element
    passing      bytes at the rate of their level, for each transfer to or from memory
    reading      passing the values in memory from which the value is computed

a value of `n` elements that `r` kernels need, and would compute `t` times together, is computed
again by each of them if

    computing(t) + r reading   <=   computing(n) + reading + passing (1 + r')

with r' kernels that read it from memory: all but the one that computes and stores it, or all if
none can, which costs one more launch.

Bounds on the code of one kernel, so that lowering stays linear in the size of the graph.

A value that its readers compute is emitted for each index at which it is read, and each view of
several values adds conditions around them. Without a bound, chains of joins, shifts and slices
would double the code at each step, and long chains would make kernels that take ever longer to
compile. A value that would exceed the bounds of a kernel is stored. Usual kernels are far smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr
from kernelmill.core.dtype import F32
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.axes import size_hint
from kernelmill.lower.elements.views import Index, written_over

MOST_COPIES = 48
"""Operations that are written out again in one kernel to spare a value: code has its cost too."""

_MOST_LEAVES = 8
"""Most leaves of a value that are distinguished. With more, recomputing it never pays off."""


@dataclass(frozen=True)
class Alternatives:
    """Nanoseconds of a value's ways: every reader may `recompute` it, one of them `materialise` it
    for all, or a `separate_kernel` do that."""

    recompute: float
    materialise: float
    separate_kernel: float


_CHAINS = frozenset("exp exp2 expm1 log log1p log2 log10 sin cos tanh sigmoid erf".split())
"""Functions of f32 that are written out where there is FMA: chains of operations, each of which
waits for the one before."""


def has_chains(nodes: Iterable[Node], isa: Isa) -> bool:
    """Return whether one of the nodes is such a function."""
    return isa.has_fma and any(n.op in _CHAINS and n.result.dtype.compute == F32 for n in nodes)


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


MOST_CODE = 160
"""Limit of the code of one kernel, in computed elements."""

MOST_EPILOGUE = 48
"""Pointwise nodes that follow one contraction in its kernel."""

MOST_DEPTH = 400
"""Calls within calls of the emitter, which asks for what an element is made of: see `depth`."""

_OF_KIND = {OpKind.POINTWISE: 1, OpKind.GATHER: 4, OpKind.REDUCE: 16}
"""A reduction is a pass of its own, which computes again what is not kept."""

_OF_CASE = 2
"""Code of each source of an element: conditions, a mask and a choice."""

_MOST_CASES = 16
"""Code that a view may add to one kernel by being read at more places than one."""

_MOST_INDEX = 160
"""Characters of the symbols and divisions in one index: reshapes of reshapes nest divisions."""


def code(node: Node) -> int:
    """Return the code size of an element of this node, each time that it is computed."""
    if node.op == "concat":
        return _OF_CASE * (len(node.operands) if written_over(node) is None else 2)
    return _code_of(node.op)


@cache
def _code_of(op: str) -> int:
    """Return the `code` of all operators but concat; a view that fills has two values."""
    definition = OPS[op]
    if definition.transparent:
        return _OF_CASE if definition.fills else 0
    return _OF_KIND.get(definition.kind, 0)


def depth(node: Node) -> int:
    """Return the nesting depth of calls from an element of this node to one of its operands."""
    return 4 if OPS[node.op].kind is OpKind.POINTWISE else 10 if code(node) else 5


def fits(node: Node, held: int, indices: Iterable[Index | None], times: int) -> bool:
    """Return whether a kernel that holds `held` code may compute a node too: at these indices, and
    written out `times` times."""
    each = code(node)
    if OPS[node.op].transparent:
        if (times - 1) * each > _MOST_CASES or any(map(_is_long, indices)):
            return False
        if each == 0:
            return True
    return held + times * each <= MOST_CODE


class Blocks:
    """Blocks of code in a kernel, by number, each in another one; 0 is the kernel's own.

    What one of several values that a view may show is made of is computed in a block of its own,
    and computed again in the next: only what the blocks around have is known inside.
    """

    def __init__(self) -> None:
        self._around: list[int] = [0]
        self._known: list[tuple[Value, Index] | None] = [None]

    def inside(self, block: int, known: tuple[Value, Index] | None) -> int:
        """Add a block inside this one; before it an element is computed that it may need."""
        self._around.append(block)
        self._known.append(known)
        return len(self._around) - 1

    def knows(self, block: int, value: Value, index: Index | None) -> bool:
        """Return whether an element is already computed when this block begins."""
        while block:
            if self._known[block] == (value, index):
                return True
            block = self._around[block]
        return False


def _is_long(index: Index | None) -> bool:
    return index is not None and sum(map(_length, index)) > _MOST_INDEX


def _length(dim: Dim) -> int:
    atoms: Iterable[str] = ()
    if isinstance(dim, Expr):
        atoms = (atom for monomial, _ in dim.terms for atom in monomial)
    return sum(map(len, atoms))
