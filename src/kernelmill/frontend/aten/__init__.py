"""Translators of ATen operators by topic; importing this fills the registry."""

from kernelmill.frontend.aten import (
    activations,
    attention,
    binary,
    casts,
    contractions,
    indexing,
    joins,
    norms,
    pooling,
    random,
    reductions,
    scatters,
    softmax,
    sources,
    unary,
    views,
)

__all__ = [
    "activations",
    "attention",
    "binary",
    "casts",
    "contractions",
    "indexing",
    "joins",
    "norms",
    "pooling",
    "random",
    "reductions",
    "scatters",
    "softmax",
    "sources",
    "unary",
    "views",
]
