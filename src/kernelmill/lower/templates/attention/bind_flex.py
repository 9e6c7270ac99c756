"""Attention nodes with scores that a model modifies, in the terms of their template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, I64
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.template import Binding, GroupContext
from kernelmill.lower.templates.attention.bind import broadcast, entry_reader, spec_of
from kernelmill.lower.templates.attention.positions import latest_key
from kernelmill.lower.templates.attention.spec import AttentionSpec, KeyBlocks, MaskKind


@dataclass(frozen=True)
class FlexBinding(Binding[AttentionSpec]):
    """A group around a flex_attention node, which computes the scores that it reads."""

    context: GroupContext

    def spec(self, emitter: Emitter, packed: PackedWeights) -> AttentionSpec:
        """Return the spec. UnsupportedError for symbolic depths or numbers of heads."""
        node = self.context.group.seed
        assert node is not None
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
