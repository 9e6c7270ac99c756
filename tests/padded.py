"""Runs graphs at their true sizes, and padded to larger ones and cut back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import DimInput, Graph, Input, Value
from kernelmill.plan.ir import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.gears.padded_calls import Resizing
from tests.tolerances import mismatch


def blind_padding(graph: Graph, symbols: frozenset[str]) -> Padding:
    """Every argument padded and every result cut, without asking whether that is right."""
    entries = list(enumerate(graph.inputs))
    return Padding(
        inputs=tuple(
            PaddedInput(n, entry.value.shape, entry.value.type.memory_strides)
            for n, entry in entries
            if isinstance(entry, Input)
        ),
        results=tuple(
            PaddedResult(n, tuple((size,) for size in result.shape), result.type.memory_strides)
            for n, result in enumerate(graph.results)
            if isinstance(result, Value)
        ),
        sizes=tuple(
            (n, entry.symbol.name)
            for n, entry in entries
            if isinstance(entry, DimInput) and entry.symbol.name in symbols
        ),
    )


def padded_difference(
    graph: Graph,
    padding: Padding,
    arguments: Sequence[Any],
    sizes: Mapping[str, int],
    gear: Mapping[str, int],
) -> str | None:
    """What differs between the graph at `sizes` and padded to `gear`; None when nothing does."""
    expected = run_graph(graph, list(arguments))
    resizing = Resizing(padding, sizes, gear)
    actual = resizing.cut(run_graph(graph, resizing.pad(arguments)))
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        wrong = _difference(mine, theirs)
        if wrong is not None:
            return f"result {number}: {wrong}"
    return None


def _difference(mine: Any, theirs: Any) -> str | None:
    if not isinstance(theirs, torch.Tensor):
        return None if mine == theirs else f"{mine} instead of {theirs}"
    if theirs.numel() > 1 and _steps(mine) != _steps(theirs):
        return f"strides {mine.stride()} instead of {theirs.stride()}"
    return mismatch(mine, theirs)


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: of dims with more than one element."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1]
