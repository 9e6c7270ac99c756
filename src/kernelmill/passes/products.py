"""Numbers of bf16 products that may replace one of f32 (see `matmul` in graph/ops.py)."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import F32
from kernelmill.graph.ir import Graph, Node
from kernelmill.graph.rewriter import Rewriter


def multiplies_f32(node: Node) -> bool:
    """Return whether products of bf16 could compute this node."""
    return node.op == "matmul" and node.operands[0].dtype == F32


@dataclass(frozen=True)
class AllowProducts:
    """A pass that sets `products` of all products of f32 to 0, 1 or 3, in place of their own."""

    products: int
    name: str = "allow-products"

    def apply(self, graph: Graph) -> Graph:
        """Return an equivalent graph, or the same one if no product is to be marked."""
        if not any(multiplies_f32(node) for node in graph.nodes):
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if multiplies_f32(node):
                rewriter.keep(node, products=self.products)
            else:
                rewriter.keep(node)
        return rewriter.finish()
