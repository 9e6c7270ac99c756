"""Translators of ATen operators by topic; importing this fills the registry."""

from kernelmill.frontend.aten import (
    activations,
    attention,
    binary,
    contractions,
    convolutions,
    norms,
    orders,
    pooling,
    quantized,
    recurrent,
    reductions,
    scatters,
    sources,
    unary,
    views,
)

__all__ = [
    "activations",
    "attention",
    "binary",
    "contractions",
    "convolutions",
    "norms",
    "orders",
    "pooling",
    "quantized",
    "recurrent",
    "reductions",
    "scatters",
    "sources",
    "unary",
    "views",
]
