"""What matmul and convolution are as a contraction: sizes, and the index of each element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmill.core.dim import Dim, product
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.views import Index, unravel

Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class Roles:
    """A contraction as C[batch, m, n] = sum over k, with the value and index of each element."""

    batch: Dims
    m: Dim
    n: Dim
    k: Dims
    a: Value
    b: Value
    a_index: Callable[[Dims, Dim, Dims], Index]
    b_index: Callable[[Dims, Dim, Dims], Index]
    result_index: Callable[[Dims, Dim, Dim], Index]


def matmul_roles(node: Node) -> Roles:
    """The roles of a product of matrices."""
    a, b = node.operands
    batch, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
    if n == 1 and m != 1:
        # A matrix times a vector: the vector axis runs along the matrix's rows instead.
        return Roles(
            batch, 1, m, (k,), b, a,
            lambda bi, _, ki: (*bi, ki[0], 0),
            lambda bi, ni, ki: (*bi, ni, ki[0]),
            lambda bi, _, ni: (*bi, ni, 0),
        )  # fmt: skip
    return Roles(
        batch, m, n, (k,), a, b,
        lambda bi, mi, ki: (*bi, mi, ki[0]),
        lambda bi, ni, ki: (*bi, ki[0], ni),
        lambda bi, mi, ni: (*bi, mi, ni),
    )  # fmt: skip


def grouped_roles(node: Node, first: Dim) -> Roles:
    """The roles of a grouped product: a batch of matrices B, and A's rows from `first` on, counted
    anew for each."""
    a, b, _ = node.operands
    return Roles(
        b.shape[:1], a.shape[0], b.shape[2], (a.shape[1],), a, b,
        lambda bi, mi, ki: (first + mi, ki[0]),
        lambda bi, ni, ki: (bi[0], ki[0], ni),
        lambda bi, mi, ni: (first + mi, ni),
    )  # fmt: skip


def convolution_roles(node: Node) -> Roles:
    """Output channels are the rows; the vector runs over output pixels of one row of the image, or
    of the whole image where rows are short or the input's pixels are read one after another."""
    x, weight = node.operands
    groups = node.attrs["groups"]
    assert isinstance(groups, int)
    outputs = node.result.shape[2:]
    window = _window(node)
    per_group = weight.shape[0] // groups
    channels = weight.shape[1]
    if slides(node):
        missing = (1,) * (4 - len(weight.shape))
        return Roles(
            (x.shape[0], groups), per_group, product(outputs),
            (channels, *missing, *weight.shape[2:]), weight, x,
            lambda bi, mi, ki: (bi[1] * per_group + mi, ki[0], *ki[1 + len(missing) :]),
            lambda bi, ni, ki: (bi[0], bi[1] * channels + ki[0], *unravel(ni, outputs)),
            lambda bi, mi, ni: (bi[0], bi[1] * per_group + mi, *unravel(ni, outputs)),
        )  # fmt: skip
    plain = all(size == 1 for size in weight.shape[2:]) and node.result.shape[2:] == x.shape[2:]
    flat = plain or len(outputs) == 1 or _short(outputs[-1])
    split = 0 if flat else len(outputs) - 1
    rows = outputs[:split]
    columns = product(outputs[split:])

    def place(bi: Dims, ni: Dim) -> Index:
        return (*bi[2:], *unravel(ni, outputs[split:]))

    return Roles(
        (x.shape[0], groups, *rows), per_group, columns, (channels, *weight.shape[2:]),
        weight, window,
        lambda bi, mi, ki: (bi[1] * per_group + mi, *ki),
        lambda bi, ni, ki: (bi[0], bi[1] * channels + ki[0], *place(bi, ni), *ki[1:]),
        lambda bi, mi, ni: (bi[0], bi[1] * per_group + mi, *place(bi, ni)),
    )  # fmt: skip


def slides(node: Node) -> bool:
    """Whether this is a convolution of one or two axes whose windows are worth a strip."""
    if node.op != "conv" or len(node.result.shape) > 4:
        return False
    x, weight = node.operands
    same = node.result.shape[2:] == x.shape[2:]
    return not (same and all(size == 1 for size in weight.shape[2:]))


def _short(width: Dim) -> bool:
    """Whether vectors along one image row would waste more lanes than gathering costs."""
    return isinstance(width, int) and width < 24 and width % 16 != 0


def _window(node: Node) -> Value:
    """The input of a convolution as windows: (N, C, out..., kernel...)."""
    x, weight = node.operands
    builder = GraphBuilder("window")
    dims = tuple(range(2, len(x.shape)))
    padding = node.attrs["padding"]
    return builder.emit(
        "window", x, dims=dims, size=weight.shape[2:], stride=node.attrs["stride"],
        dilation=node.attrs["dilation"], low=padding, high=padding, value=0.0,
    )  # fmt: skip
