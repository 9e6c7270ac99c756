"""The loops of a nest: which axes merge, which is the vector axis, how tasks split them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Dim,
    Sym,
    ceildiv,
    linear_part,
    of_atom,
    product,
    recombine,
    substitute,
    symbols,
)  # fmt: skip
from kernelmill.core.dtype import DType
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements import views
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.views import Index


class AccessKind(StrEnum):
    """The purpose that a loop body evaluates an index expression for."""

    LOAD = "load"
    STORE = "store"
    CONDITION = "condition"


@dataclass(frozen=True)
class IndexAccess:
    """An index expression that a loop body evaluates: an address of memory, or a condition.

    A load names the value and its domain index, unless that index is looked up; a store names the
    value.
    """

    expression: Dim
    kind: AccessKind
    dtype: DType | None = None
    value: Value | None = None
    index: Index = ()


@dataclass(frozen=True)
class Axis:
    """A loop: `symbol` runs over 0 .. extent - 1."""

    symbol: Sym
    extent: Dim

    @property
    def name(self) -> str:
        return self.symbol.name


def collect(
    pairs: Sequence[tuple[Value, Index]],
    stored: Callable[[Value], Location | None],
    stop: set[Value],
) -> list[IndexAccess]:
    """Collect all accesses that computing these elements makes. Values in `stop` are known."""
    found: list[IndexAccess] = []
    pending = list(pairs)
    seen: set[tuple[Value, Index]] = set()
    placeholders: set[str] = set()
    while pending:
        value, index = pending.pop()
        if (value, index) in seen or value in stop:
            continue
        seen.add((value, index))
        location = stored(value)
        if location is not None:
            known = placeholders.isdisjoint(name for i in index for name in symbols(i))
            place = views.address(index, location.strides, location.offset)
            of = value if known else None
            found.append(IndexAccess(place, AccessKind.LOAD, location.dtype, of, index))
        elif value.node is not None:
            more, conditions = _evaluated(value.node, index, placeholders)
            pending += more
            found += [IndexAccess(condition, AccessKind.CONDITION) for condition in conditions]
    return found


def _evaluated(
    node: Node, index: Index, placeholders: set[str]
) -> tuple[list[tuple[Value, Index]], list[Dim]]:
    """Return the operand elements and the conditions that an element of this node takes."""
    definition = OPS[node.op]
    if definition.kind is OpKind.POINTWISE:
        return [(operand, index) for operand in node.operands], []
    if definition.transparent:
        found = views.sources(node, index)
        conditions = [condition for source in found for condition in source.conditions]
        return [(source.operand, source.index) for source in found], conditions
    if definition.kind is OpKind.GATHER:
        return _looked_up(node, index, placeholders), []
    if node.op == "iota":
        dim = node.attrs["dim"]
        assert isinstance(dim, int)
        return [], [index[dim]]
    return [], []


def _looked_up(node: Node, index: Index, placeholders: set[str]) -> list[tuple[Value, Index]]:
    """Return the reads of a lookup; positions that are looked up are placeholder symbols."""
    source, *indices = node.operands
    at = node.attrs.get("at", 0)
    assert isinstance(at, int)
    rank = len(indices[0].shape)
    inner = index[at : at + rank] if node.op == "index" else index
    positions: list[Dim] = []
    for size in source.shape:
        placeholder = Sym(f"q_{len(placeholders)}", 0, size - 1)
        placeholders.add(placeholder.name)
        positions.append(of_atom(placeholder))
    found = _gathered_index(node.attrs, index, at, rank, positions)
    return [(source, found), *((operand, inner) for operand in indices)]


def _gathered_index(
    attrs: Mapping[str, object], index: Index, at: int, rank: int, looked_up: Sequence[Dim]
) -> Index:
    dims = attrs.get("dims")
    if dims is None:
        dim = attrs["dim"]
        return tuple(looked_up[d] if d == dim else i for d, i in enumerate(index))
    assert isinstance(dims, tuple)
    kept = iter(index[:at] + index[at + rank :])
    return tuple(looked_up[d] if d in dims else next(kept) for d in range(len(looked_up)))


def merge_axes(
    axes: Sequence[Axis], accesses: Sequence[IndexAccess]
) -> tuple[list[Axis], dict[str, Dim], list[IndexAccess]]:
    """Merge neighbouring axes that every access steps through as if they were one.

    Returns the axes, what each old symbol is in terms of the new ones, and the accesses rewritten.
    """
    merged = list(axes)
    mapping: dict[str, Dim] = {}
    position = len(merged) - 2
    while position >= 0:
        first, second = merged[position], merged[position + 1]
        empty = first.extent == 0 or second.extent == 0
        if not empty and all(_step_as_one(a.expression, first, second) for a in accesses):
            extent = first.extent * second.extent
            symbol = Sym(f"{first.name}{second.name}", 0, extent - 1)
            both = of_atom(symbol)
            step: dict[str, Dim] = {
                first.name: both // second.extent,
                second.name: both % second.extent,
            }
            mapping = {name: substitute(dim, step) for name, dim in mapping.items()} | step
            accesses = [
                replace(a, expression=recombine(substitute(a.expression, step))) for a in accesses
            ]
            merged[position : position + 2] = [Axis(symbol, extent)]
        position -= 1
    return merged, mapping, list(accesses)


def _step_as_one(expression: Dim, first: Axis, second: Axis) -> bool:
    outer = linear_part(expression, first.name)
    if outer is None:
        return False
    inner = linear_part(outer[1], second.name)
    if inner is None or second.name in symbols(outer[0]):
        return False
    return outer[0] == inner[0] * second.extent


def stride_score(axis: Axis, accesses: Sequence[IndexAccess], lanes: int) -> float:
    """Rate a vector along `axis` by the strides of the accesses; larger is better."""
    score = 0.0
    for access in accesses:
        linear = linear_part(access.expression, axis.name)
        if access.kind is AccessKind.CONDITION:
            score -= 0.0 if linear is not None and linear[0] == 0 else 0.5
        elif linear is None:
            score -= 4.0
        elif linear[0] == 1:
            score += 4.0 if access.kind is AccessKind.STORE else 3.0
        elif linear[0] == 0:
            score += 0.5 if access.kind is AccessKind.LOAD else -100.0
        else:
            score -= 2.0 if access.kind is AccessKind.LOAD else 3.0
    if isinstance(axis.extent, int) and axis.extent < lanes:
        # Mostly masked lanes: worth it only where nothing longer is contiguous.
        score = score * axis.extent / lanes if score > 0 else score
    return score


TASK_ELEMENTS = 8192
"""About how many elements one task handles: some microseconds of work."""


@dataclass(frozen=True)
class TaskSplit:
    """The leading `count` axes, flattened and cut into runs of `rows`, are spread over tasks."""

    count: int
    rows: Dim
    total: Dim

    @property
    def tasks(self) -> Dim:
        return ceildiv(self.total, self.rows) if self.total != 0 else 0


def split_tasks(axes: Sequence[Axis], elements_per_row: Dim) -> TaskSplit:
    """Choose how many leading axes are spread over tasks; the others are loops inside a task."""
    inside: Dim = elements_per_row
    count = len(axes)
    while count > 1 and isinstance(inside * axes[count - 1].extent, int):
        grown = inside * axes[count - 1].extent
        if not isinstance(grown, int) or grown > TASK_ELEMENTS:
            break
        inside, count = grown, count - 1
    total = product(axis.extent for axis in axes[:count])
    rows = max(1, TASK_ELEMENTS // max(1, inside)) if isinstance(inside, int) else 1
    if isinstance(total, int):
        rows = max(1, min(rows, total))
    return TaskSplit(count, rows, total)


def axes_of(symbols_in_order: Sequence[Sym], extents: Mapping[str, Dim]) -> list[Axis]:
    """Return the axes for a group's symbols."""
    return [Axis(symbol, extents[symbol.name]) for symbol in symbols_in_order]


def count(axes: Sequence[Axis]) -> Dim:
    """Return the number of elements of a domain."""
    return product(axis.extent for axis in axes)
