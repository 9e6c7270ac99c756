"""Cuts concatenations of many tensors into concatenations of some, which kernels can hold."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.rewriter import Rewriter


@dataclass(frozen=True)
class SplitJoins:
    """concat(a, b, ...) of more than `most` tensors becomes concat(concat(a, ...), ...): a kernel
    asks for each of its pieces in turn whether an element is of that one."""

    most: int = 48
    name: str = "split-joins"

    def apply(self, graph: Graph) -> Graph:
        if not any(self._is_long(node) for node in graph.nodes):
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if not self._is_long(node):
                rewriter.keep(node)
                continue
            parts: list[Value] = list(rewriter.operands(node))
            while len(parts) > 1:
                runs = [parts[i : i + self.most] for i in range(0, len(parts), self.most)]
                parts = [self._joined(rewriter, node, run) for run in runs]
            rewriter.replace(node.result, parts[0])
        return rewriter.finish()

    def _is_long(self, node: Node) -> bool:
        return node.op == "concat" and len(node.operands) > self.most

    def _joined(self, rewriter: Rewriter, node: Node, run: Sequence[Value]) -> Value:
        if len(run) == 1:
            return run[0]
        return rewriter.emit(node, "concat", *run, dim=node.attrs["dim"])
