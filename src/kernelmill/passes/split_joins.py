"""Cuts concatenations and reductions that are too long for one kernel."""

from __future__ import annotations

from math import prod

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS


@dataclass(frozen=True)
class SplitJoins:
    """concat(a, b, ...) of more than `most` tensors becomes concat(concat(a, ...), ...): a kernel
    asks for each of its pieces in turn whether an element is of that one."""

    most: int = 48
    name: str = "split-joins"

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, self._joined)

    def _joined(self, rewriter: Rewriter, node: Node) -> Value | None:
        if node.op != "concat" or len(node.operands) <= self.most:
            return None
        parts = list(rewriter.operands(node))
        while len(parts) > 1:
            runs = [parts[i : i + self.most] for i in range(0, len(parts), self.most)]
            parts = [
                run[0] if len(run) == 1 else rewriter.emit(node, "concat", *run, **node.attrs)
                for run in runs
            ]
        return parts[0]


_PARTS = (64, 60, 56, 50, 49, 48, 40, 36, 32, 28, 25, 24, 20, 16)
"""Candidates for the number of parts; the first that divides the length is taken."""


@dataclass(frozen=True)
class SplitReductions:
    """reduce(x) becomes reduce(reduce(parts of x)) from `least` elements for each of at most `most`
    results on. Half types are summed in f32 throughout, as in one pass."""

    least: int = 65536
    most: int = 8
    name: str = "split-reductions"

    def apply(self, graph: Graph) -> Graph:
        def split(rewriter: Rewriter, node: Node) -> Value | None:
            parts = self._parts(node)
            return None if parts is None else _split(rewriter, node, parts)

        return rewritten(graph, split)

    def _parts(self, node: Node) -> int | None:
        if OPS[node.op].kind is not OpKind.REDUCE or OPS[node.op].kernel_op is None:
            return None
        if node.attrs.get("ordered"):
            return None
        reduced = _static([node.operands[0].shape[d] for d in _dims(node)])
        kept = _static(node.result.shape)
        if reduced is None or kept is None or kept > self.most or reduced < self.least:
            return None
        return next((parts for parts in _PARTS if reduced % parts == 0), None)


def _split(rewriter: Rewriter, node: Node, parts: int) -> Value:
    x = rewriter.value(node.operands[0])
    dims = _dims(node)
    kept = [d for d in range(len(x.shape)) if d not in dims]
    dtype = x.dtype
    if dtype.compute != dtype:
        x = rewriter.emit(node, "cast", x, dtype=F32)
    shape = tuple(x.shape[d] for d in kept)
    length = _static([x.shape[d] for d in dims])
    assert length is not None
    x = rewriter.emit(node, "permute", x, dims=(*kept, *dims))
    x = rewriter.emit(node, "reshape", x, shape=(*shape, parts, length // parts))
    x = rewriter.emit(node, node.op, x, dims=(len(kept) + 1,))
    x = rewriter.emit(node, node.op, x, dims=(len(kept),))
    return x if x.dtype == dtype else rewriter.emit(node, "cast", x, dtype=dtype)


def _dims(node: Node) -> tuple[int, ...]:
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return tuple(sorted(d for d in dims if isinstance(d, int)))


def _static(shape: tuple[Dim, ...] | list[Dim]) -> int | None:
    sizes = [size for size in shape if isinstance(size, int)]
    return prod(sizes) if len(sizes) == len(shape) else None
