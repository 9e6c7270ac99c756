"""Attention nodes in the terms of their template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, BOOL, F32, F64, DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.ir import Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims, size_hint
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Along, Matrix, contiguity
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.epilogue import Epilogue
from kernelmill.lower.schedule.template import Binding, GroupContext
from kernelmill.lower.templates.attention.spec import AttentionSpec, MaskKind, WordOperands, Words
from kernelmill.lower.weights.dot_operand import DotOperand

Reader = Callable[[Value, int, DType], Callable[..., Register]]
"""How an operand of which so many heads share one is read, in a type."""


@dataclass(frozen=True)
class AttentionBinding(Binding[AttentionSpec]):
    """A group around an attention node."""

    context: GroupContext

    def spec(self, emitter: Emitter, packed: PackedWeights) -> AttentionSpec:
        """Return the spec. UnsupportedError for symbolic depths or numbers of heads."""
        node = self.context.group.seed
        assert node is not None
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
