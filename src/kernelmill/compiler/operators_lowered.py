"""Operators lowered alone: each once in a process, whatever program it occurs in."""

from __future__ import annotations

from functools import cache

from kernelmill.core.errors import UnsupportedError
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph
from kernelmill.graph.printer import print_graph
from kernelmill.lower.driver.lowered import Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import lower_graph


class Library:
    """Operators lowered for one machine, by the text of their graphs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._lowered: dict[str, Lowered | None] = {}

    def dynamic(self, operator: Operator) -> LoweredOperator | None:
        """Return kernels for all sizes; None for an operator that has none."""
        if operator.general is None:
            return None
        lowered = self.lower(operator.general)
        return None if lowered is None else LoweredOperator(lowered, operator.values)

    def lower(self, graph: Graph) -> Lowered | None:
        """Return the operator's plan and kernels; None when it has no lowering in this form."""
        text = print_graph(graph, names=False)
        if text not in self._lowered:
            try:
                self._lowered[text] = lower_graph(graph, self.machine)
            except UnsupportedError:
                self._lowered[text] = None
        return self._lowered[text]


@cache
def library(machine: Machine) -> Library:
    """Return the library of a machine; there is one in a process."""
    return Library(machine)
