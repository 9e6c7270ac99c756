"""Graphs of torch.fx, which may have others inside, for higher-order operators."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx


def graph_modules(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """Return a graph and those inside of it."""
    return [part for part in gm.modules() if isinstance(part, fx.GraphModule)]


def all_nodes(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes of a graph and of those inside of it."""
    for part in graph_modules(gm):
        yield from part.graph.nodes
