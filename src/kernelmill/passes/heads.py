"""Replaces repeated heads of an attention's keys and values by the heads themselves."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, Value


@dataclass(frozen=True)
class FoldRepeatedKV:
    """attention(q, repeat(k), repeat(v)) becomes attention(q, k, v).

    Models with grouped queries often write the repetition out: k of shape (B, G, N, D) viewed as
    (B, G, 1, N, D), expanded to (B, G, R, N, D), and viewed as (B, G * R, N, D). The operator takes
    groups as they are, and reads an Rth of the memory.
    """

    name: str = "fold-repeated-kv"

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, _grouped)


def _grouped(rewriter: Rewriter, node: Node) -> Value | None:
    if node.op != "attention":
        return None
    query, key, value, *mask = rewriter.operands(node)
    few_keys, few_values = _unrepeated(key), _unrepeated(value)
    if few_keys is None or few_values is None or few_keys.shape[1] != few_values.shape[1]:
        return None
    return rewriter.emit(node, "attention", query, few_keys, few_values, *mask, **node.attrs)


def _unrepeated(x: Value) -> Value | None:
    """Return the value whose dim 1 was repeated, each entry several times in a row, to make x."""
    merged = x.made_by("reshape")
    expanded = None if merged is None else merged.operands[0].made_by("expand")
    split = None if expanded is None else expanded.operands[0].made_by("reshape")
    if expanded is None or split is None or len(expanded.result.shape) != 5:
        return None
    source = split.operands[0]
    batch, groups, repeats, length, width = expanded.result.shape
    if split.result.shape != (batch, groups, 1, length, width):
        return None
    if source.shape != (batch, groups, length, width):
        return None
    return source if x.shape == (batch, groups * repeats, length, width) else None
