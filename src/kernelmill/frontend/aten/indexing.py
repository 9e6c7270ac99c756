"""Reads through index tensors: embedding, index, gather, index_select."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dtype import BOOL, I64, U8
from kernelmill.frontend.emitter import Emitter, common_shape, wrap
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.graph.ir import Value


def as_index(e: Emitter, index: Value) -> Value:
    """Return an index tensor as i64."""
    if index.dtype in (BOOL, U8):
        raise NotTranslated("a mask as index: the result's size depends on its values")
    return e.cast(index, I64)


def at_least_1d(e: Emitter, x: Value) -> Value:
    """Reshape a 0-d tensor to one element in 1-d, as these operators take it."""
    return x if x.shape else e.reshape(x, (1,))


def lookup(e: Emitter, x: Value, indices: Sequence[Value | None]) -> tuple[tuple[int, ...], int]:
    """Return the indexed dims, and the place of the indices' shape in the result, as in NumPy."""
    dims = tuple(d for d, index in enumerate(indices) if index is not None)
    adjacent = dims == tuple(range(dims[0], dims[-1] + 1))
    return dims, dims[0] if adjacent else 0


def shaped_indices(e: Emitter, indices: Sequence[Value | None]) -> list[Value]:
    """Return the index tensors that are not None, as i64, expanded to one common shape."""
    present = [as_index(e, index) for index in indices if index is not None]
    shape = common_shape([index.shape for index in present])
    return [e.expand(index, shape) for index in present]


@translates("index.Tensor", "_unsafe_index.Tensor")
def index(e: Emitter, x: Value, indices: Sequence[Value | None]) -> Value:
    if all(entry is None for entry in indices):
        return x
    dims, at = lookup(e, x, indices)
    return e.emit("index", x, *shaped_indices(e, indices), dims=dims, at=at)


@translates("embedding.default")
def embedding(
    e: Emitter,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return e.emit("index", weight, as_index(e, indices), dims=(0,), at=0, unsigned=True)


@translates("index_select.default")
def index_select(e: Emitter, x: Value, dim: int, indices: Value) -> Value:
    x, positions = at_least_1d(e, x), at_least_1d(e, as_index(e, indices))
    dim = wrap(dim, len(x.shape))
    found = e.emit("index", x, positions, dims=(dim,), at=dim, unsigned=True)
    return e.reshape(found, e.shape)


@translates("gather.default")
def gather(e: Emitter, x: Value, dim: int, indices: Value, *, sparse_grad: bool = False) -> Value:
    x, positions = at_least_1d(e, x), at_least_1d(e, as_index(e, indices))
    found = e.emit("gather", x, positions, dim=wrap(dim, len(x.shape)), unsigned=True)
    return e.reshape(found, e.shape)
