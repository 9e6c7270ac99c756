"""Programs by how exactly torch is asked to multiply float32 when it is compiled or called."""

from __future__ import annotations

from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core.dtype import BF16
from kernelmill.core.target.isa import target_isa
from kernelmill.graph.ir import Graph
from kernelmill.passes.products import AllowProducts, multiplies_f32
from kernelmill.runtime.precision import EXACT, allowed_products


def depends_on_precision(graph: Graph, config: CompilerConfig) -> bool:
    """Whether the setting can change what a program computes: where there are no tiles of bf16
    every product of f32 is one."""
    tiles = target_isa(config.target, to_run=False).tile_unit(BF16, BF16)
    wanted = tiles is not None and config.float32_pieces
    return wanted and any(map(multiplies_f32, graph.nodes))


def under_precision(graph: Graph, products: int | None = None) -> Graph:
    """The graph with so many products of bf16 allowed for each of f32; None: as torch's setting
    says now."""
    products = allowed_products() if products is None else products
    return graph if products == EXACT else AllowProducts(products).apply(graph)
