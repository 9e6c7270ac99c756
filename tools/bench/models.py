"""The models of the benchmark, at full size."""

from __future__ import annotations

from tests import zoo

NAMES = ("mlp", "minilm", *zoo.BUILDERS)


def build(name: str) -> zoo.Case:
    """The case of that name. Raises KeyError for no such model."""
    if name == "mlp":
        return zoo.mlp()
    if name == "minilm":
        return zoo.minilm()
    return zoo.BUILDERS[name](small=False)
