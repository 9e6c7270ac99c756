"""Programs by the precision of float32 matmuls in torch at the compile or call.

Dynamo does not distinguish "high" from "medium" and does not compare oneDNN's setting, and
AOTAutograd's backward compares nothing, so each call reads the setting. It is oneDNN's for matmul,
set by `torch.set_float32_matmul_precision` and `torch.backends.mkldnn.matmul.fp32_precision`. If it
is unset, `torch.backends.mkldnn.fp32_precision` applies, then `torch.backends.fp32_precision`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kernelmill.config import CompilerConfig
from kernelmill.core.dtype import BF16
from kernelmill.core.target.isa import target_isa
from kernelmill.graph.builder import Rewriter
from kernelmill.graph.ir import Attr, Graph
from kernelmill.passes.integer_products import AllowProducts, multiplies_f32
from kernelmill.torch_internals.dispatch import float32_precision, outside_modes


def depends_on_precision(graph: Graph, config: CompilerConfig) -> bool:
    """Return whether the setting can change a program's results: without tiles of bf16 every
    product of f32 is one."""
    tiles = target_isa(config.target, to_run=False).tile_unit(BF16, BF16)
    wanted = tiles is not None and config.float32_pieces
    return wanted and _multiplies_f32(graph)


def _multiplies_f32(graph: Graph) -> bool:
    inside = any(map(_multiplies_f32, graph.body_graphs().values()))
    return inside or any(map(multiplies_f32, graph.nodes))


def under_precision(graph: Graph, products: int | None = None) -> Graph:
    """Return the graph with so many products of bf16 allowed for each of f32; None: as in torch's
    setting now."""
    products = allowed_products() if products is None else products
    if products == EXACT:
        return graph
    graph = AllowProducts(products).apply(graph)
    return _with_bodies(graph, products) if graph.body_graphs() else graph


def _with_bodies(graph: Graph, products: int) -> Graph:
    """Return the graph with the same allowed to its bodies, which get other names, as they are
    other programs."""
    names = {name: f"{name}_{products}" for name in graph.body_graphs()}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        attrs = {key: node.attrs[key] for key in ("args", "kwargs") if node.op == "aten"}
        renamed = {key: _renamed(value, names) for key, value in attrs.items()}
        rewriter.keep(node, **(renamed if renamed != attrs else {}))
    found = rewriter.finish()
    found.bodies = {name: body for name, body in graph.bodies.items() if name not in names}
    for name, body in graph.body_graphs().items():
        fresh = found.bodies[names[name]] = replace(under_precision(body, products))
        fresh.name = names[name]
    return found


def _renamed(literal: Attr, names: Mapping[str, str]) -> Attr:
    match literal:
        case ("body" | "single" as tag, str(name)):
            return tag, names.get(name, name)
        case tuple():
            return tuple(_renamed(part, names) for part in literal)
        case _:
            return literal


EXACT = 6
_PRODUCTS = {"tf32": 3, "bf16": 1}


def allowed_products() -> int:
    """Return the number of bf16 products that may replace one of f32: `EXACT` for "highest", 3 for
    "high" (two bf16 for each number), 1 for "medium"."""
    return _PRODUCTS.get(float32_precision("matmul"), EXACT)


Call = Callable[..., Any]


def by_precision(graph: Graph, config: CompilerConfig, compile: Callable[[Graph], Call]) -> Call:
    """Return a function that runs the graph compiled for torch's setting at the call: compiled now
    for the current one, for others at the first call under them. Where no setting changes the
    result, it is the one function from `compile`."""
    if not depends_on_precision(graph, config):
        return compile(graph)
    products = allowed_products()
    calls = {products: compile(under_precision(graph, products))}

    def call(*args: Any) -> Any:
        products = allowed_products()
        found = calls.get(products)
        if found is None:
            made = outside_modes(lambda: compile(under_precision(graph, products)))
            found = calls.setdefault(products, made)
        return found(*args)

    return call
