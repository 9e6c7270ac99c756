"""One graph over symbols, compiled as a static graph for each gear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmill.compiler.gear_kernels import GearSizes
from kernelmill.compiler.pipeline import compile_at_sizes
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core.dim import Dim, Expr, as_sym, evaluate, of_atom, symbols
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.ir import DimInput, Graph, Input
from kernelmill.runtime.geared import GearedProgram, SizeSource


def compile_gears(
    graph: Graph, gears: Sequence[Mapping[str, int]], config: CompilerConfig
) -> GearedProgram:
    """A program for each gear: the values that it gives the graph's symbols.

    Symbols with one value in all gears are static. Raises what `compile_graph` does, and
    UnsupportedError when no argument tells gears apart that differ in what they compute.
    """
    varying = {
        name
        for name in graph.symbols
        if all(name in gear for gear in gears) and len({gear[name] for gear in gears}) > 1
    }
    read = _sources(graph, varying)
    by_sizes: dict[tuple[int, ...], Mapping[str, int]] = {}
    for gear in gears:
        sizes = tuple(evaluate(dim, gear) for _, dim in read)
        known = by_sizes.setdefault(sizes, gear)
        if any(known[name] != gear[name] for name in varying):
            raise UnsupportedError(f"arguments of the sizes {sizes} may be of several gears")
    named = [GearSizes(_name(graph, sizes), gear) for sizes, gear in by_sizes.items()]
    programs = compile_at_sizes(graph, named, config)
    kept = tuple(
        number
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input) or entry.symbol.name not in gears[0]
    )
    return GearedProgram(
        tuple(source for source, _ in read),
        tuple(str(dim) for _, dim in read),
        dict(zip(by_sizes, programs, strict=True)),
        kept,
        len(graph.inputs),
    )


_GEAR = "_gear_"


def _name(graph: Graph, sizes: tuple[int, ...]) -> str:
    return graph.name + _GEAR + "_".join(map(str, sizes))


def gear_of(name: str) -> tuple[int, ...]:
    """The sizes that the program of this name is for; none where it is not one of several gears."""
    _, found, sizes = name.rpartition(_GEAR)
    return tuple(map(int, sizes.split("_"))) if found else ()


def _sources(graph: Graph, varying: set[str]) -> list[tuple[SizeSource, Dim]]:
    """Where a call's arguments say which values the varying symbols have, and as which dim."""
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
    """Integer arguments first, then dims that are one symbol, then all others."""
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
