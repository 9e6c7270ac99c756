"""What to call a graph with: tensors of its inputs' types, strides included, and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from kernelmill.core.dim import Sym, bounds, evaluate
from kernelmill.core.dtype import DType, to_torch
from kernelmill.graph.ir import DimInput, Graph, Input

Elements = Callable[[DType, int], torch.Tensor]
"""So many elements of a dtype."""


def arguments(graph: Graph, seed: int, specials: bool = False) -> list[torch.Tensor | int]:
    """What to call `graph` with: the same for the same seed. Symbols get values in their ranges.

    `specials` puts NaN, infinities, signed zeros and denormals among the floats.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = {name: _size(*_range(symbol), generator) for name, symbol in graph.symbols.items()}

    def elements(dtype: DType, count: int) -> torch.Tensor:
        made = _elements(dtype, count, generator)
        return _with_specials(made, generator) if specials and dtype.is_float else made

    return _of_sizes(graph, sizes, elements)


def whole_arguments(graph: Graph, sizes: Mapping[str, int]) -> list[torch.Tensor | int]:
    """What to call `graph` with at these sizes: small whole numbers, of which sums and products are
    exact in every dtype."""
    generator = torch.Generator().manual_seed(0)

    def elements(dtype: DType, count: int) -> torch.Tensor:
        low, high = {"bool": (0, 2), "uint": (0, 256)}.get(dtype.kind, (-3, 4))
        return torch.randint(low, high, (count,), generator=generator).to(to_torch(dtype))

    return _of_sizes(graph, sizes, elements)


def _of_sizes(
    graph: Graph, sizes: Mapping[str, int], elements: Elements
) -> list[torch.Tensor | int]:
    return [
        sizes[entry.symbol.name] if isinstance(entry, DimInput) else _tensor(entry, sizes, elements)
        for entry in graph.inputs
    ]


def _range(symbol: Sym) -> tuple[int, int]:
    high = None if symbol.hi is None else bounds(symbol.hi)[1]
    return symbol.lo, symbol.lo + 6 if high is None else high


def _size(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _tensor(entry: Input, sizes: Mapping[str, int], elements: Elements) -> torch.Tensor:
    kind = entry.value.type
    shape = [evaluate(dim, sizes) for dim in kind.shape]
    strides = [evaluate(dim, sizes) for dim in kind.memory_strides]
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return elements(kind.dtype, max(reach, 0) + 1).as_strided(shape, strides)


def _with_specials(memory: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    special = torch.tensor(_SPECIALS, dtype=memory.dtype)
    chosen = torch.randint(0, 8 * len(special), memory.shape, generator=generator)
    few = chosen < len(special)
    memory[few] = special[chosen[few]]
    return memory


_SPECIALS = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, -1e-7, 65504.0)


def _elements(dtype: DType, count: int, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_float:
        normal = torch.randn(count, generator=generator, dtype=torch.float64)
        return (normal * 2).to(to_torch(dtype))
    low, high = {"bool": (0, 2), "uint": (0, 256)}.get(dtype.kind, (-128, 128))
    return torch.randint(low, high, (count,), generator=generator).to(to_torch(dtype))
