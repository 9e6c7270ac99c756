"""Gears across graph breaks: results of one graph have gears for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from kernelmill.backend.gears import CaptureGears, at, symbolic
from kernelmill.gears.declaration import ATTRIBUTE, DimGears, Link
from kernelmill.torch_internals import dynamo

Call = Callable[..., Any]


def linked_results(gm: fx.GraphModule, gears: CaptureGears) -> Callable[[Call], Call]:
    """Return a wrapper for the call of Dynamo's graph that sets gears on the tensors it returns.

    The gears of a result's dim are its sizes for each gear of the graph. They are linked with those
    of the graph's arguments, which the next graph may take too.
    """
    link = Link()
    nodes = gm.graph.find_nodes(op="placeholder")
    for node, argument in zip(nodes, gears.arguments, strict=True):
        declared = argument.gears
        if declared is not None and (rows := _rows(argument.dims, gears)):
            setattr(node.meta["grapharg"].example, ATTRIBUTE, DimGears(declared.dims, link, rows))
    marks: list[DimGears | None] = []
    results: Any = gm.graph.output_node().args[0]
    for node in results:
        fake = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        dims = map(symbolic, fake.shape) if isinstance(fake, torch.Tensor) else ()
        rows = _rows(dims, gears)
        marks.append(DimGears(rows, link, rows) if rows else None)

    def wrap(call: Call) -> Call:
        def run(*args: Any) -> Any:
            made = call(*args)
            _mark(made, marks)
            return made

        return run

    return wrap


def _rows(dims: Iterable[Any], gears: CaptureGears) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the dims of a tensor whose size depends on the gear: (dim, size for each gear)."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for dim, expression in enumerate(dims):
        sizes = [at(expression, values) for values in gears.values.values()]
        if len(set(sizes)) > 1 and all(size.is_number for size in sizes):
            found.append((dim, tuple(map(int, sizes))))
    return tuple(found)


def _mark(results: Sequence[Any], marks: Sequence[DimGears | None]) -> None:
    functions = dynamo.marks.get()
    for result, mark in zip(results, marks, strict=True):
        if mark is not None and functions is not None and isinstance(result, torch.Tensor):
            setattr(result, ATTRIBUTE, mark)
            for dim, _ in mark.dims:
                functions.dynamic(result, dim)
