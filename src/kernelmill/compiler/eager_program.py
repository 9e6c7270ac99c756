"""Programs that are not compiled: ATen runs the graph."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph


@dataclass(frozen=True, eq=False)
class EagerProgram:
    """A program that runs a graph operator by operator."""

    graph: Graph

    def call(self, *arguments: Any) -> list[Any]:
        """Return the graph's results, by eager operators."""
        return run_graph(self.graph, arguments)
