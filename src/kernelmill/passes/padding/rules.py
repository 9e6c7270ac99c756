"""Operators that combine elements: reductions, contractions, attention, look-ups, ATen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, provably_nonnegative
from kernelmill.core.dtype import DType, to_torch
from kernelmill.graph.ir import Node
from kernelmill.passes.padding import views
from kernelmill.passes.padding.axes import Axis, Factor, Number, Padded, Unproven, holds
from kernelmill.passes.padding.facts import (
    ANY,
    FINITE,
    LOW,
    NONNEGATIVE,
    Known,
    join_axes,
    joined,
    of_product,
    together,
)

Rule = Callable[["Scene", Node, Sequence[Known]], Known]


@dataclass(frozen=True)
class Scene(Padded):
    """The padded symbols, and whether the user has named a mask that hides padding."""

    trusted: bool = False

    def dependent(self, axis: Axis) -> list[Factor]:
        """Return the factors whose size changes with padding."""
        return [factor for factor in axis if self.depends(factor.size)]

    def trusts(self, *operands: Known) -> bool:
        """Return whether a sum over padding is taken on the user's word: a mask is in it."""
        return self.trusted and any(known.masked for known in operands)


def _is(factors: Sequence[Factor], number: Number) -> bool:
    """Return whether every element that is not kept in one of the factors is this number."""
    alone = len(factors) == 1
    return all(f.kind == "padded" and f.fill == number and (f.strong or alone) for f in factors)


# ---- reductions -----------------------------------------------------------------------------


def _lowest(dtype: DType) -> Number:
    if dtype.kind == "bool":
        return False
    return -inf if dtype.is_float else torch.iinfo(to_torch(dtype)).min


def _highest(dtype: DType) -> Number:
    if dtype.kind == "bool":
        return True
    return inf if dtype.is_float else torch.iinfo(to_torch(dtype)).max


_NEUTRAL: dict[str, Callable[[DType], Number]] = {
    "reduce_sum": lambda _: 0,
    "reduce_prod": lambda _: 1,
    "reduce_max": _lowest,
    "reduce_min": _highest,
    "reduce_maxnum": _lowest,
    "argmax": _lowest,
    "argmin": _highest,
}
_VERBS = {"reduce_sum": "adds up", "reduce_prod": "multiplies"}


def reduce(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return a reduction's facts: a padded dim needs neutral padding, or the user's word."""
    (x,) = operands
    dims: Any = node.attrs["dims"]
    reduced = [factor for d in dims for factor in scene.dependent(x.axes[d])]
    extreme = node.op in ("reduce_max", "reduce_min", "reduce_maxnum")
    same = extreme and all(f.kind == "uniform" for f in reduced)
    if not (same or _is(reduced, _NEUTRAL[node.op](node.operands[0].dtype)) or scene.trusts(x)):
        verb = _VERBS.get(node.op, "compares")
        raise Unproven(f"{verb} the elements of a padded dim of size {_sizes(node, dims)}")

    def kept(factor: Factor) -> Factor:
        stays = extreme or factor.fill == _NEUTRAL[node.op](node.operands[0].dtype)
        known = stays and (factor.strong or not reduced)
        return replace(factor, index=None, fill=factor.fill if known else None)

    axes = [tuple(map(kept, axis)) for d, axis in enumerate(x.axes) if d not in dims]
    sign = x.sign if extreme else _total(node, dims, x.sign)
    return replace(x, axes=tuple(axes), sign=sign, constant=x.constant if extreme else None)


def _total(node: Node, dims: Sequence[int], sign: int) -> int:
    """Return the sign of a sum or product."""
    if node.op == "reduce_prod":
        return of_product(sign)
    some = all((bounds(node.operands[0].shape[d])[0] or 0) > 0 for d in dims)
    return sign if some else max(sign, NONNEGATIVE)


def _sizes(node: Node, dims: Sequence[int]) -> str:
    return ", ".join(str(node.operands[0].shape[d]) for d in dims)


def arg_reduce(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of a position, a kept one since padding must lose to all kept elements."""
    (x,) = operands
    dim: Any = node.attrs["dim"]
    first = scene.prefix(x.axes[dim])
    if first is not None and not _is([first], _NEUTRAL[node.op](node.operands[0].dtype)):
        raise Unproven(f"looks for an element in a padded dim of size {_sizes(node, (dim,))}")
    axes = [axis for d, axis in enumerate(x.axes) if d != dim]
    return together(operands, [_bare(axis) for axis in axes], sign=NONNEGATIVE)


def _bare(axis: Axis) -> Axis:
    return tuple(Factor(factor.size, factor.kind) for factor in axis)


# ---- contractions ---------------------------------------------------------------------------


def matmul(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return a product's facts: padding along k must be zero on one side, or trusted."""
    a, b = operands
    k = join_axes(scene, (a.axes[-1], b.axes[-2]))
    sides = [[f for f in axis if scene.depends(f.size)] for axis in k]
    gone = any(
        _is(side, 0) and other.sign <= FINITE for side, other in zip(sides, (b, a), strict=True)
    )
    if sides[0] and not gone and not scene.trusts(a, b):
        raise Unproven(f"adds up products over a padded dim of size {node.operands[0].shape[-1]}")
    whole = not sides[0]
    axes = [_batch(scene, operands, d, whole) for d in range(len(a.axes) - 2)]
    axes.append(_zeros(a.axes[-2], b, whole))
    axes.append(_zeros(b.axes[-1], a, whole))
    return together(operands, axes, sign=_finite(a, b))


def _batch(scene: Scene, operands: Sequence[Known], d: int, whole: bool) -> Axis:
    parts = join_axes(scene, [known.axes[d] for known in operands])
    zeros = (_zeros(axis, other, whole) for axis, other in zip(parts, operands[::-1], strict=True))
    return tuple(
        replace(joined((x, y)), fill=0 if 0 in (x.fill, y.fill) else None)
        for x, y in zip(*zeros, strict=True)
    )


def _zeros(axis: Axis, other: Known, whole: bool) -> Axis:
    """Return an axis of one operand in the product: padding that is zero stays zero."""

    def kept(factor: Factor) -> Factor:
        zero = factor.fill == 0 and factor.strong and other.sign <= FINITE and whole
        return Factor(factor.size, factor.kind, 0 if zero else None)

    return tuple(map(kept, axis))


def _finite(*operands: Known) -> int:
    return FINITE if all(known.sign <= FINITE for known in operands) else ANY


def conv(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return a convolution's facts: the batch may be padded, and a dim over whose end the window
    does not reach, or whose padding is zero as convolution's own is."""
    x, weight = operands
    padding: Any = node.attrs["padding"]
    for axis in (x.axes[1], *weight.axes):
        if scene.dependent(axis):
            raise Unproven("adds up products over a padded dim (channels or weights)")
    axes = [_bare(x.axes[0]), scene.axis(node.result.shape[1])]
    for axis, size, reach in zip(x.axes[2:], node.result.shape[2:], padding, strict=True):
        first = scene.prefix(axis)
        if first is not None and reach and not holds(scene, x.axes, first, 0):
            raise Unproven("has windows that reach over the end of a padded dim")
        axes.append(scene.axis(size))
    return together(operands, axes, sign=_finite(x, weight))


# ---- attention ------------------------------------------------------------------------------

_LARGE_NEGATIVE = -1e4
"""exp of what is smaller by this much is zero in every dtype."""


def attention(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return an attention's facts. Padded queries are rows of their own, padded keys must be hidden
    from every kept row: by a mask whose padding is known, by causality, or by the user's word."""
    query, key, value, *rest = operands
    if any(scene.dependent(axis) for axis in (query.axes[1], key.axes[1], query.axes[3])):
        raise Unproven("has a padded number of heads or size of heads")
    shape = (*node.operands[0].shape[:3], node.operands[1].shape[2])
    masks = [_expanded(mask, shape) for mask in rest]
    batch = [known.axes[0] for known in (query, key, value)] + [mask[0] for mask in masks]
    rows = _joined(scene, [query.axes[2], *(mask[2] for mask in masks)])
    keys = join_axes(scene, [key.axes[2], value.axes[2], *(mask[3] for mask in masks)])
    if node.attrs["causal"] and scene.prefix(rows) is not None:
        rows = scene.axis(shape[2])
    if scene.dependent(keys[0]) and not scene.trusts(*operands):
        hidden = any(_hides(scene, node, axis) for axis in keys[2:])
        if not hidden and not _is_causal(scene, node, rows, keys[0]):
            raise Unproven(f"attends to a padded dim of size {shape[3]} that no mask hides")
        if _finite(*operands[:3]) == ANY:
            raise Unproven("attends to padding that may hold infinities or NaN")
    sure = all(mask.sign <= LOW for mask in rest)
    axes = [_joined(scene, batch), scene.axis(shape[1]), rows]
    axes.append(scene.axis(node.result.shape[3]))
    return together(operands, axes, sign=_finite(*operands[:3]) if sure else ANY)


def _expanded(mask: Known, shape: Sequence[Dim]) -> list[Axis]:
    """Return the axes of a mask at the shape of the scores."""
    missing = len(shape) - len(mask.axes)
    axes = [()] * missing + list(mask.axes)
    return [
        axis if axis or size == 1 else (Factor(size, "uniform"),)
        for axis, size in zip(axes, shape, strict=True)
    ]


def _joined(scene: Scene, axes: Sequence[Axis]) -> Axis:
    return tuple(map(joined, zip(*join_axes(scene, axes), strict=True)))


def _hides(scene: Scene, node: Node, keys: Axis) -> bool:
    """Return whether the mask forbids every key that is not kept.

    A large negative number does so only with another visible key, which the user has to ensure.
    """
    hidden = scene.dependent(keys)
    if node.operands[3].dtype.kind == "bool":
        return _is(hidden, False)
    fill = hidden[0].fill if hidden else None
    if fill is None or fill > (_LARGE_NEGATIVE if scene.trusted else -inf):
        return False
    return _is(hidden, fill)


def _is_causal(scene: Scene, node: Node, rows: Axis, keys: Axis) -> bool:
    """Return whether causality hides padding: a kept row sees only keys below the rows' number."""
    if not node.attrs["causal"]:
        return False
    first, last = scene.prefix(rows), scene.prefix(keys)
    return first is not None and last is not None and provably_nonnegative(last.size - first.size)


# ---- look-ups -------------------------------------------------------------------------------


def index(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return a lookup's facts: kept positions see kept elements, all indices must be in range."""
    x, *places = operands
    dims: Any = node.attrs["dims"]
    at: Any = node.attrs["at"]
    for place, dim in zip(places, dims, strict=True):
        _looks_up(scene, node, x.axes[dim], node.operands[0].shape[dim], place)
    inner = [
        join_axes(scene, [place.axes[d] for place in places]) for d in range(len(places[0].axes))
    ]
    found = [
        tuple(_looked_up(x, dims, factors) for factors in zip(*axes, strict=True)) for axes in inner
    ]
    kept = [_no_index(axis) for d, axis in enumerate(x.axes) if d not in dims]
    return together(operands, (*kept[:at], *found, *kept[at:]), sign=x.sign, constant=x.constant)


def _looked_up(x: Known, dims: Sequence[int], factors: Sequence[Factor]) -> Factor:
    """Return a factor of the indices in the result: the factor of x along its dim where one index
    simply counts along it."""
    factor = joined(factors)
    for dim, mine in zip(dims, factors, strict=True):
        if mine.index is None or len(x.axes[dim]) != 1:
            continue
        (source,) = x.axes[dim]
        if source.index is not None:
            factor = replace(factor, index=source.index + mine.index)
        if mine.index == 0 and source.size == mine.size and factor.kind == source.kind == "padded":
            factor = replace(factor, fill=source.fill, strong=source.strong)
    return factor


def _no_index(axis: Axis) -> Axis:
    return tuple(replace(factor, index=None) for factor in axis)


def _looks_up(scene: Scene, node: Node, axis: Axis, size: Dim, place: Known) -> None:
    """Check one tensor of indices into a dim. Raises Refusal."""
    counted = bool(node.attrs.get("unsigned")) or place.sign <= NONNEGATIVE
    if any(factor.kind != "uniform" for factor in scene.dependent(axis)):
        scene.prefix(axis)
        if not counted:
            raise Unproven(f"may count indices from the end of a padded dim of size {size}")
    ends = [factor for factor in place.factors if factor.kind == "padded"]
    if place.fixed or not ends:
        return
    for factor in ends:
        fill = factor.fill
        if fill is None or not factor.strong or fill < 0 or not _inside(fill, size):
            raise Unproven("looks up with indices that may be out of range in the padding")


def _inside(place: Number, size: Dim) -> bool:
    return isinstance(place, int) and provably_nonnegative(size - place - 1)


def gather(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of a lookup along one dim; the other dims go side by side."""
    x, places = operands
    dim: Any = node.attrs["dim"]
    shapes = [operand.shape for operand in node.operands]
    _looks_up(scene, node, x.axes[dim], shapes[0][dim], places)
    axes = [
        _no_index(places.axes[d]) if d == dim else _beside(scene, operands, shapes, d)
        for d in range(len(x.axes))
    ]
    axes[dim] = _bare(axes[dim])
    return together(operands, axes, sign=x.sign, constant=x.constant)


def _beside(
    scene: Scene, operands: Sequence[Known], shapes: Sequence[tuple[Dim, ...]], d: int
) -> Axis:
    """Pair a dim along which operands are read at equal positions, maybe not all of the first's."""
    if len({shape[d] for shape in shapes}) > 1:
        if any(scene.depends(shape[d]) for shape in shapes):
            raise Unproven(f"reads a part of a padded dim, of {shapes[0][d]} elements")
        return scene.axis(shapes[1][d])
    return _joined(scene, [known.axes[d] for known in operands])


def scatter(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return a scatter's facts: padded rows stay their own, and `dim` must not be padded."""
    x, places, source = operands
    dim: Any = node.attrs["dim"]
    shapes = [operand.shape for operand in node.operands]
    if any(scene.depends(shape[dim]) for shape in shapes):
        raise Unproven(f"writes into or from a padded dim of size {shapes[0][dim]}")
    _looks_up(scene, node, x.axes[dim], shapes[0][dim], places)
    axes = [
        _beside(scene, operands, shapes, d) if d != dim else scene.axis(shapes[0][d])
        for d in range(len(x.axes))
    ]
    # What is written may be for the first elements of a dim; the result has all of them.
    whole = zip(axes, shapes[0], shapes[1], strict=True)
    axes = [axis if size == part else scene.axis(size) for axis, size, part in whole]
    return together(operands, axes, sign=_finite(x, source))


# ---- what is not looked into ----------------------------------------------------------------


def opaque(scene: Scene, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of an unknown operator. Raises Refusal where it meets anything padded."""
    if any(scene.depends(operand.shape) for operand in node.operands):
        raise Unproven("sees a padded dim, and what it does with one is not known")
    if scene.depends(*node.attrs.values()):
        raise Unproven("is given a size that is padded")
    return together(operands, [scene.axis(size) for size in node.result.shape], sign=ANY)


def aten(scene: Scene, node: Node, operands: Sequence[Known]) -> list[Known]:
    """Return facts of an ATen call's results by their sizes. Raises Refusal as `opaque`."""
    target = node.attrs["target"]
    if any(scene.depends(operand.shape) for operand in node.operands):
        raise Unproven(f"({target}) sees a padded dim, and what it does with one is not known")
    if scene.depends(*node.attrs.values()):
        raise Unproven(f"({target}) is given a size that is padded")
    masked = any(known.masked for known in operands)
    return [
        Known(tuple(scene.axis(size) for size in value.shape), masked=masked)
        for value in node.results
    ]


RULES: dict[str, Rule] = {
    "full": views.full, "iota": views.iota, "dim_value": views.dim_value,
    "expand": views.expand, "permute": views.permute, "reshape": views.reshape,
    "slice": views.cut, "flip": views.flip, "pad": views.pad, "concat": views.concat,
    "window": views.window, "layout": views.layout, "as_strided": opaque,
    "reduce_sum": reduce, "reduce_prod": reduce, "reduce_max": reduce, "reduce_min": reduce,
    "reduce_maxnum": reduce,
    "argmax": arg_reduce, "argmin": arg_reduce, "cumsum": views.scan, "cumprod": views.scan,
    "matmul": matmul, "grouped_matmul": opaque, "conv": conv, "attention": attention,
    "attention_scores": opaque, "flex_attention": opaque,
    "argsort": opaque, "argtopk": opaque, "searchsorted": opaque,
    "recurrent": opaque,
    "index": index, "gather": gather, "scatter": scatter, "index_put": opaque,
}  # fmt: skip
"""The rule of every operator that is neither pointwise nor ATen."""
