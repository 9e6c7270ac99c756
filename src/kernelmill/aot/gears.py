"""Gears of a program that is compiled ahead of time: the sizes of dims of its arguments."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch.export import Dim

from kernelmill.aot.exported import Exported
from kernelmill.artifact.guards import broken_sizes
from kernelmill.artifact.manifest import CallSpec, Gears
from kernelmill.backend.gears import solved, symbolic, unequal
from kernelmill.compiler.gears import GearCompiler
from kernelmill.compiler.linking import Compiled
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, GearError, GearTypeError
from kernelmill.gears.gear_set import GearSet, Marked, combine, declare
from kernelmill.graph.ir import Graph

GivenGears = Mapping[str, Mapping[int, Sequence[int]]]
"""{argument: {dim: [size, size, ...]}}"""


@dataclass(frozen=True)
class DeclaredGears:
    """The gears of a model's arguments. `given` are those by name; `listed`: each gear was named,
    and is not only a combination of others; `dynamic`: other sizes have a program too."""

    given: Mapping[str, Any]
    marked: tuple[Marked, ...]
    gears: GearSet
    listed: bool
    dynamic: bool

    @classmethod
    def of(
        cls, gears: object, program: Any, args: Any, kwargs: Any, config: CompilerConfig
    ) -> Self:
        """Check gears against the arguments of the trace. GearError or GearTypeError for gears that
        break their rules, or of an argument that is not passed."""
        if not isinstance(gears, Mapping) or not gears:
            raise GearTypeError(
                f"gears is {gears!r}: give a dict from arguments to dims and their sizes, as "
                "{'x': {0: [2, 4]}}"
            )
        options = config.inference_config
        if options.gear_miss == "pad":
            raise ConfigError(
                "config.inference_config.gear_miss='pad' and gears of aot.compile do not go "
                "together: take 'error' or 'dynamic', or cache_compile"
            )
        function = program.forward if isinstance(program, torch.nn.Module) else program
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        declared: Mapping[Any, Any] = gears
        for name in declared:
            _check_name(name, given)
        marked = tuple(
            Marked(name, tuple(value.shape), declare(declared[name], value.shape))
            for name, value in given.items()
            if name in declared
        )
        policy = options.dynamic_gears_merge_policy
        combined = combine(marked, policy)
        dynamic = options.gear_miss == "dynamic"
        return cls(given, marked, combined, policy == "zip", dynamic)

    def traced(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Return the arguments to trace with, and the dims that vary, as torch.export takes them. A
        trace fixes sizes 0 and 1: arguments of such a size are resized to a gear without. Contents
        are not read."""
        own = self.gears.of({each.name: each.shape for each in self.marked})
        shown = next((gear for gear in (own, *self.gears.gears) if min(gear) > 1), own)
        sizes: dict[str, dict[int, int]] = {each.name: {} for each in self.marked}
        for axis, size in zip(self.gears.axes, shown, strict=True):
            sizes[axis.argument][axis.dim] = size
        resized = {id(self.given[n]): _resized(self.given[n], new) for n, new in sizes.items()}
        return (
            tuple(resized.get(id(value), value) for value in args),
            {name: resized.get(id(value), value) for name, value in kwargs.items()},
            {n: dict.fromkeys(sizes[n], Dim.AUTO) if n in sizes else None for n in self.given},
        )

    def values(self, graph: Graph, exported: Exported, spec: CallSpec) -> list[Mapping[str, int]]:
        """Return the values of the graph's symbols in each gear that the trace holds for. GearError
        for unfit gears that were `listed`."""
        nodes = exported.gm.graph.find_nodes(op="placeholder")
        traced = {p: node.meta["val"] for node, p in zip(nodes, exported.leaves, strict=False)}
        sizes = [traced[("argument", a.argument),].shape[a.dim] for a in self.gears.axes]

        def broken(values: Mapping[str, int]) -> str:
            return broken_sizes(spec, values)(values) or unequal(graph, values)

        values, _ = solved(self.gears, list(map(symbolic, sizes)), {}, broken, self.listed)
        return list(values.values())


def with_gears(
    graph: Graph, values: Sequence[Mapping[str, int]], dynamic: bool, compiler: Compiler
) -> tuple[Gears, list[Compiled[Any]]]:
    """Compile the programs of a graph for gears of these values; with `dynamic`, one for all other
    sizes comes first. Return the table that selects one for a call too."""
    rest = compiler.compile_all([graph]) if dynamic else []
    found = GearCompiler(graph, values, compiler)
    named = [found.named(sizes) for sizes in found.gears]
    numbers = {sizes: number for number, sizes in enumerate(found.gears, len(rest))}
    made = [*rest, *compiler.compile_at_sizes(graph, named)]
    program, otherwise = found.program, 0 if dynamic else -1
    sources = tuple((source.argument, source.axis) for source in program.sources)
    gears = Gears(
        sources, program.symbols, tuple(numbers.items()), program.arguments, program.count,
        otherwise,
    )  # fmt: skip
    return gears, made


def _check_name(name: object, given: Mapping[str, Any]) -> None:
    tensors = [each for each, value in given.items() if isinstance(value, torch.Tensor)]
    if name in tensors:
        return
    near = difflib.get_close_matches(str(name), tensors, n=1, cutoff=0.0)
    meant = f"; the nearest is {near[0]!r}" if near else ""
    if name in given:
        what = type(given[str(name)]).__name__
        raise GearTypeError(f"gears are set on tensors, and argument {name!r} is {what}{meant}")
    raise GearError(f"gears name the argument {name!r}, which is not passed{meant}")


def _resized(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """Return an empty tensor of other sizes, whose dims have the same order in memory."""
    shape = [sizes.get(dim, size) for dim, size in enumerate(tensor.shape)]
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    made = tensor.new_empty([shape[dim] for dim in order])
    return made.permute([order.index(dim) for dim in range(tensor.dim())])
