"""One graph over symbols, compiled as a static graph for each gear."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kernelmill.compiler.linking import Compiled, EagerProgram, GearSizes
from kernelmill.compiler.pipeline import Compiler, Served
from kernelmill.core.dim import Dim, Expr, as_sym, evaluate, of_atom, symbols
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.builder import at_sizes
from kernelmill.graph.ir import DimInput, Graph, Input
from kernelmill.runtime.gears.padded_calls import GearedProgram
from kernelmill.runtime.memory.dims import SizeSource

Sizes = tuple[int, ...]


class GearCompiler:
    """A compiler of the gears of a graph, all at once or some at a time, into one `program`.

    `gears` has the values of the graph's symbols by the sizes that select a call's gear. Not
    thread-safe.
    """

    def __init__(
        self, graph: Graph, gears: Sequence[Mapping[str, int]], compiler: Compiler
    ) -> None:
        """Take the values of the graph's symbols for each gear; those equal in all are static.

        UnsupportedError when no argument distinguishes gears that differ in their results.
        """
        self.graph, self.compiler = graph, compiler
        varying = {
            name
            for name in graph.symbols
            if all(name in gear for gear in gears) and len({gear[name] for gear in gears}) > 1
        }
        read = _sources(graph, varying)
        self._dims = tuple(dim for _, dim in read)
        self.gears: dict[Sizes, Mapping[str, int]] = {}
        for gear in gears:
            sizes = self.sizes_of(gear)
            known = self.gears.setdefault(sizes, gear)
            if any(known[name] != gear[name] for name in varying):
                raise UnsupportedError(f"arguments of the sizes {sizes} may be of several gears")
        kept = tuple(
            number
            for number, entry in enumerate(graph.inputs)
            if isinstance(entry, Input) or entry.symbol.name not in gears[0]
        )
        self.program = GearedProgram(
            tuple(source for source, _ in read),
            tuple(map(str, self._dims)),
            {},
            kept,
            len(graph.inputs),
        )

    def sizes_of(self, gear: Mapping[str, int]) -> Sizes:
        """Return the sizes that select a gear."""
        return tuple(evaluate(dim, gear) for dim in self._dims)

    @property
    def left(self) -> list[Sizes]:
        """The gears that have no program yet, in their order."""
        return [sizes for sizes in self.gears if sizes not in self.program.table]

    def compile(self, sizes: Sequence[Sizes]) -> None:
        """Compile these gears together. Raises the errors of `compile_graph`."""
        named = [self.named(each) for each in sizes]
        self._add(named, self.compiler.compile_at_sizes(self.graph, named))

    def batches(self) -> Iterator[None]:
        """Compile all gears that are left, some at each step of the iterator: first those that
        share kernels, then one at a time, the largest first. Raises as `compile`."""
        left = sorted(self.left, key=lambda sizes: (math.prod(sizes), sizes), reverse=True)
        named = [self.named(sizes) for sizes in left]
        for batch, made in self.compiler.compile_in_batches(self.graph, named):
            self._add(batch, made)
            yield

    def run_eagerly(self, sizes: Sizes) -> None:
        """Let ATen run the calls of this gear."""
        known = at_sizes(self.graph, self.gears[sizes], self.named(sizes).name)
        self.program.add(sizes, EagerProgram(known))

    def named(self, sizes: Sizes) -> GearSizes:
        """Return the gear that these sizes select, with its name."""
        return GearSizes(_name(self.graph, sizes), self.gears[sizes])

    def _add(self, named: Sequence[GearSizes], made: Sequence[Compiled[Served]]) -> None:
        for gear, compiled in zip(named, made, strict=True):
            sizes = self.sizes_of(gear.values)
            if sizes not in self.program.table:
                self.program.add(sizes, compiled.program)


_GEAR = "_gear_"


def _name(graph: Graph, sizes: tuple[int, ...]) -> str:
    return graph.name + _GEAR + "_".join(map(str, sizes))


def gear_of(name: str) -> tuple[int, ...]:
    """Return the sizes of a gear's program from its name; () for other programs."""
    _, found, sizes = name.rpartition(_GEAR)
    return tuple(map(int, sizes.split("_"))) if found else ()


def _sources(graph: Graph, varying: set[str]) -> list[tuple[SizeSource, Dim]]:
    """Return the arguments and dims from which a call's values of the varying symbols are read."""
    wanted = set(varying)
    found: list[tuple[SizeSource, Dim]] = []
    for source, dim in _readable(graph):
        needed = symbols(dim).keys() & wanted
        if len(needed) == 1:
            found.append((source, dim))
            wanted -= needed
    if wanted:
        raise UnsupportedError(f"no argument tells the size {', '.join(sorted(wanted))}")
    return found


def _readable(graph: Graph) -> list[tuple[SizeSource, Dim]]:
    """List integer arguments first, then dims that are one symbol, then all others."""
    plain: list[tuple[SizeSource, Dim]] = []
    other: list[tuple[SizeSource, Dim]] = []
    integers: list[tuple[SizeSource, Dim]] = []
    for number, entry in enumerate(graph.inputs):
        if isinstance(entry, DimInput):
            integers.append((SizeSource(number), of_atom(entry.symbol)))
            continue
        for axis, dim in enumerate(entry.value.shape):
            if isinstance(dim, Expr):
                (other if as_sym(dim) is None else plain).append((SizeSource(number, axis), dim))
    return [*integers, *plain, *other]
