"""Dispatch on the float32 matmul precision of torch at the call.

Dynamo compares this setting only in part ("high" and "medium" are one to it, and oneDNN's own is in
none of its guards), and AOTAutograd's backward not at all: each call reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill.compiler.precision import depends_on_precision, under_precision
from kernelmill.config import CompilerConfig
from kernelmill.graph.ir import Graph
from kernelmill.runtime.precision import allowed_products
from kernelmill.torch_internals.dispatch import outside_modes

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
