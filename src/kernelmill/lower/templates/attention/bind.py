"""Conversion of attention nodes, also with scores modified by the model, to the template's spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, BOOL, F32, F64, I64, DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, size_hint
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Along, Matrix, contiguity
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.template import Binding, Epilogue, GroupContext
from kernelmill.lower.templates.attention.spec import (
    AttentionSpec,
    KeyBlocks,
    MaskKind,
    WordOperands,
    Words,
)
from kernelmill.lower.weights.dot_operand import DotOperand

Reader = Callable[[Value, int, DType], Callable[..., Register]]
"""Returns the access to an operand that this number of heads share, in a type."""


class AttentionBinding(Binding[AttentionSpec]):
    """A group around an attention node."""

    def spec(self, emitter: Emitter, packed: PackedWeights) -> AttentionSpec:
        """Return the spec. UnsupportedError for symbolic depths or numbers of heads."""
        node = self.seed
        query, key, value, *masks = node.operands
        dtype, reader = F64 if query.dtype == F64 else F32, partial(entry_reader, emitter)
        spec = spec_of(self.context, emitter, (query, key, value), node.attrs["scale"], dtype)
        spec = replace(spec, causal=bool(node.attrs["causal"]))
        spec = replace(spec, words=self._words(spec, emitter.builder, reader))
        mask = masks[0] if masks else None
        if mask is None:
            return spec
        kind = MaskKind.KEEP if mask.dtype == BOOL else MaskKind.ADD
        wanted = mask.dtype if kind is MaskKind.KEEP else dtype
        return replace(spec, mask=reader(mask, 1, wanted), mask_kind=kind)

    def _words(self, spec: AttentionSpec, b: KernelBuilder, reader: Reader) -> WordOperands | None:
        """Return the operands for tiles, None if these are not worth it."""
        node, machine = self.context.group.seed, self.context.machine
        assert node is not None
        query, key, value = node.operands[:3]
        if not query.dtype == key.dtype == value.dtype == BF16:
            return None
        sizes = (size_hint(size) for size in (spec.rows, spec.keys, spec.depth))
        unit = machine.product_unit(BF16, BF16, *sizes)
        if not unit.on_tiles:
            return None

        def along_depth(operand: Value, group: int) -> Words:
            load = reader(operand, group, BF16)
            numbers = DotOperand(
                BF16, spec.depth, lambda bi, row, d, lane: load(b, bi, row, *d, lane)
            )
            return Words(numbers.loader, contiguous_along(self.context, operand))

        of_value = reader(value, spec.group, BF16)
        values = DotOperand(BF16, spec.keys, lambda bi, e, n, lane: of_value(b, bi, *n, e, lane))
        along = contiguous_along(self.context, value)
        turned = {Along.OUTER: Along.K, Along.K: Along.OUTER, None: None}[along]
        return WordOperands(
            unit, along_depth(query, 1), along_depth(key, spec.group), Words(values.loader, turned)
        )


def spec_of(
    context: GroupContext, emitter: Emitter, operands: tuple[Value, Value, Value], scale: object,
    dtype: DType,
) -> AttentionSpec:  # fmt: skip
    """Return the spec of an attention without a mask. UnsupportedError for symbolic depths or
    numbers of heads."""
    query, key, value = operands
    heads, depth, value_depth = query.shape[1], query.shape[-1], value.shape[-1]
    group, same = (heads // x.shape[1] if x.shape[1] != 0 else 1 for x in (key, value))
    assert isinstance(scale, float)
    known = isinstance(depth, int) and isinstance(value_depth, int)
    if not known or not isinstance(group, int) or group != same:
        sizes = f"groups of {group} and {same} heads, depths {depth} and {value_depth}"
        where = "" if context.group.seed is None else context.group.seed.origin
        raise UnsupportedError(f"attention with symbolic {sizes} at {where}")
    reader = partial(entry_reader, emitter)
    epilogue = Epilogue(emitter, context.group, context.targets)
    return AttentionSpec(
        query.shape[:2], query.shape[2], key.shape[2], depth, value_depth, scale, False,
        reader(query, 1, dtype), reader(key, group, dtype), reader(value, group, dtype),
        lambda b, bi, m, e, lane, register: epilogue.store((*bi, m, e), lane, register),
        accumulate=dtype, group=group,
        key_contiguous_along=contiguous_along(context, key) or Along.K,
    )  # fmt: skip


def entry_reader(
    emitter: Emitter, operand: Value, per_group: int, wanted: DType
) -> Callable[..., Register]:
    """Return a reader of an operand, whose heads `per_group` query heads share each."""

    def load(_: KernelBuilder, bi: Dims, row: Dim, column: Dim, lane: Lane | None) -> Register:
        at = (bi[0], bi[1] // per_group, row, column)
        return emitter.read(operand, broadcast(at, operand), lane, wanted)

    return load


def contiguous_along(context: GroupContext, operand: Value) -> Along | None:
    """Return the contiguous axis of an operand: OUTER along rows, K along a row's elements."""
    matrix = Matrix(
        operand, lambda bi, row, ki: (*bi, row, *ki), operand.shape[:2], operand.shape[2],
        operand.shape[3:],
    )  # fmt: skip
    found, _ = contiguity(matrix, context.stored)
    return found


def broadcast(index: Index, value: Value) -> Index:
    """Return the index of an element of a value that is expanded to the dims that are indexed."""
    kept = index[len(index) - len(value.shape) :]
    return tuple(0 if size == 1 else i for i, size in zip(kept, value.shape, strict=True))


_ROWS, _KEYS = 2, 3

Linear = tuple[int, int, int]
"""The factors of the row and of the key in an integer, and its constant."""


def latest_key(mask: Value) -> int | None:
    """Return the least known number d such that the mask hides key n from row m where n > m + d;
    None without one."""
    found = [c for c in map(_distance, _conjuncts(mask)) if c is not None]
    return min(found, default=None)


def _conjuncts(mask: Value) -> Iterable[Node]:
    """Yield comparisons that all hold where the mask does."""
    node = mask.node
    if node is None:
        return
    if node.op in ("bit_and", "mul", "expand"):
        for operand in node.operands:
            yield from _conjuncts(operand)
    elif node.op in ("ge", "gt", "le", "lt"):
        yield node


def _distance(node: Node) -> int | None:
    """Return d of a comparison that says n <= m + d."""
    large, small = map(_linear, node.operands if node.op[0] == "g" else reversed(node.operands))
    if large is None or small is None:
        return None
    rows, keys, more = (a - b for a, b in zip(large, small, strict=True))
    return more - (node.op[1] == "t") if (rows, keys) == (1, -1) else None


def _linear(value: Value) -> Linear | None:
    node = value.node
    if node is None:
        return None
    if node.op in ("expand", "cast"):
        integers = all(
            x.dtype.kind == "int" and x.dtype.bits >= 32 for x in (value, *node.operands)
        )
        return _linear(node.operands[0]) if integers else None
    if node.op == "iota":
        dim = node.attrs["dim"]
        return (int(dim == _ROWS), int(dim == _KEYS), 0) if dim in (_ROWS, _KEYS) else None
    if node.op == "full":
        number = node.attrs["value"]
        return (0, 0, number) if type(number) is int else None
    if node.op not in ("add", "sub"):
        return None
    left, right = map(_linear, node.operands)
    if left is None or right is None:
        return None
    sign = 1 if node.op == "add" else -1
    a, b, c = (x + sign * y for x, y in zip(left, right, strict=True))
    return a, b, c


class FlexBinding(Binding[AttentionSpec]):
    """A group around a flex_attention node, which computes the scores that it reads."""

    def spec(self, emitter: Emitter, packed: PackedWeights) -> AttentionSpec:
        """Return the spec. UnsupportedError for symbolic depths or numbers of heads."""
        node = self.seed
        modified, value, *rest = node.operands
        scores = _scores(node, modified)
        query, key = scores.operands
        operands, scale = (query, key, value), scores.attrs["scale"]
        spec = spec_of(self.context, emitter, operands, scale, scores.result.dtype)
        spec = replace(spec, normaliser=bool(node.attrs.get("normaliser")))
        if modified is not scores.result:
            spec = replace(spec, modify=_modifier(emitter, modified, scores.result))
        if node.attrs.get("masked"):
            mask, *rest = entry_reader(emitter, rest[0], 1, BOOL), *rest[1:]
            later = latest_key(node.operands[2])
            spec = replace(spec, mask=mask, mask_kind=MaskKind.CHOOSE, later=later)
        return replace(spec, blocks=_blocks(emitter, node, rest)) if rest else spec


def _scores(node: Node, modified: Value) -> Node:
    """Return the node of the scores that modified ones are computed from."""
    found: dict[Node, None] = {}
    pending, seen = [modified], set[Value]()
    while pending:
        value = pending.pop()
        if value.node is None or value in seen:
            continue
        seen.add(value)
        if OPS[value.node.op].kind is OpKind.SCORES:
            found[value.node] = None
        elif OPS[value.node.op].elementwise:
            pending += value.node.operands
    if len(found) != 1:
        raise UnsupportedError(f"attention to {len(found)} kinds of scores at {node.origin}")
    return next(iter(found))


def _modifier(emitter: Emitter, modified: Value, scores: Value) -> Callable[..., Register]:
    def modify(
        b: KernelBuilder, bi: Dims, m: Dim, n: Dim, lane: Lane, register: Register
    ) -> Register:
        with emitter.lanes(lane):
            emitter.bind_everywhere(scores, register)
            found = emitter.element(modified, broadcast((*bi, m, n), modified))
        if found.type.lanes == lane.count:
            return found
        return b.op("splat", found, dtype=found.type.dtype, lanes=lane.count)

    return modify


def _blocks(emitter: Emitter, node: Node, lists: Sequence[Value]) -> KeyBlocks:
    rows, keys = node.attrs["blocks"]  # type: ignore[reportGeneralTypeIssues]
    assert isinstance(rows, int) and isinstance(keys, int)
    counts, numbers = lists[::2], lists[1::2]
    emitter.declare_status()

    def count(which: int, bi: Dims, row: Dim) -> Register:
        return emitter.read(counts[which], broadcast((*bi, row), counts[which]), None, I64)

    def number(which: int, bi: Dims, row: Dim, place: Dim) -> Register:
        at = broadcast((*bi, row, place), numbers[which])
        return emitter.read(numbers[which], at, None, I64)

    return KeyBlocks(
        rows, keys, counts[0].shape[2], tuple(each.shape[3] for each in numbers), count, number,
        by_head=any(each.shape[1] != 1 for each in counts),
    )  # fmt: skip
