"""Calls by how exactly torch is asked to multiply float32.

Dynamo compares this setting only in part ("high" and "medium" are one to it, and oneDNN's own is in
none of its guards), and AOTAutograd's backward not at all: each call looks itself.
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
    """A function that calls what `compile` makes of the graph under torch's setting at the call:
    compiled now for the one that is in force, for others at the first call under them.

    Where no setting changes what is computed, it is the one function that `compile` makes."""
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
