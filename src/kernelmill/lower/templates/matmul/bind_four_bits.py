"""An operand B of four-bit numbers: its packed words and factors, for the spec.

All schedules read the same words, so programs of few and of many rows share them.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F32
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.domain import IndexAccess
from kernelmill.lower.elements.emitter import Emitter, Location, Substitutes
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import LoadElement
from kernelmill.lower.emit.context import accumulator
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.template import GroupContext
from kernelmill.lower.templates.matmul.spec import FourBitB, Roles
from kernelmill.lower.weights.dequantise import (
    COLUMN,
    DEPTH,
    changes_only_between,
    depth_axes,
    leaves_along,
)
from kernelmill.lower.weights.four_bits import WORD, Affine, affine, numbers_of, words_in_panels

Reads = Callable[[Value], list[IndexAccess]]
"""The operands of an element of B, or of a similar value."""


def four_bit_weight(roles: Roles, context: GroupContext, reads: Reads) -> FourBitWeight | None:
    """Return B as words with factors, None if k is not in groups of whole words with a factor."""
    n, (k,) = roles.n, roles.k
    if roles.batch or not isinstance(n, int) or not isinstance(k, int) or not n or k % WORD:
        return None
    if accumulator(roles.a.dtype) != F32:
        return None
    found = affine(roles.b, context.dequantised_in_place)
    if found is None:
        return None
    accesses = [access for factor in found.factors for access in reads(factor)]
    group = next(reversed(depth_axes(accesses, k)))
    if group % WORD or not changes_only_between(accesses, group, k):
        return None
    index = roles.b_index((), sym(COLUMN, 0, n - 1), (sym(DEPTH, 0, k - 1),))
    column, depth = (sym(COLUMN, 0, n - 1), sym(DEPTH, 0, k - 1))
    if index not in ((column, depth), (depth, column)):
        return None
    return FourBitWeight(roles, found, group, index == (depth, column), reads)


@dataclass(frozen=True)
class FourBitWeight:
    """A four-bit B, of which `group` neighbours along k share a factor; `turned`: its dims are k
    and n."""

    roles: Roles
    parts: Affine
    group: int
    turned: bool
    reads: Reads

    def pack(self, context: GroupContext, width: int, origin: str) -> PackedWeights:
        """Pack words and factors in panels of a width."""
        roles, parts, builder = self.roles, self.parts, GraphBuilder("four_bits")
        (k,), n = roles.k, roles.n
        numbers = parts.numbers
        if self.turned:
            numbers = builder.emit("permute", numbers, dims=(1, 0))
        rows = builder.emit("reshape", numbers, shape=(1, n, k))
        view = words_in_panels(rows, parts.low, width, origin)
        words = Value("words", view.type)
        stored = {words: _packed(context, view)}
        instead: dict[Value, Value] = {}
        for factor in parts.factors:
            for leaf in leaves_along(self.reads(factor)):
                if leaf.value in instead:
                    continue
                view = leaf.panels(width, origin)
                panels = Value("panels", view.type)
                stored[panels] = _packed(context, view)
                instead[leaf.value] = leaf.read_back(panels, width)
        instead[roles.b] = self._again(words, n)
        return PackedWeights(
            leaves=tuple(stored.values()), substitutes=Substitutes(instead, stored)
        )

    def _again(self, words: Value, n: Dim) -> Value:
        """Return B computed from words."""
        builder, numbers = GraphBuilder("four_bits"), numbers_of(words, self.parts.low, n)
        if self.turned:
            numbers = builder.emit("permute", numbers, dims=(1, 0))
        weight = builder.emit("cast", numbers, dtype=F32)
        if self.parts.scale is not None:
            weight = builder.emit("mul", weight, self.parts.scale)
        if self.parts.offset is not None:
            weight = builder.emit("add", weight, self.parts.offset)
        dtype = self.roles.b.dtype
        return weight if dtype == F32 else builder.emit("cast", weight, dtype=dtype)

    def operand(self, emitter: Emitter, packed: PackedWeights) -> FourBitB:
        """Return the operand as a schedule for words reads it."""
        roles = self.roles
        location = packed.leaves[0]

        def vectors(value: Value | None) -> LoadElement | None:
            if value is None:
                return None
            return _reader(emitter, value, roles.b_index)

        (width,) = {
            value.shape[-1]
            for value, where in packed.substitutes.stored.items()
            if where is location
        }
        assert isinstance(width, int)
        return FourBitB(
            _reader(emitter, roles.a, roles.a_index), emitter.param(location, "in"), width,
            self.parts.low, self.group, vectors(self.parts.scale), vectors(self.parts.offset),
            _is_bf16(roles.a),
        )  # fmt: skip


def _is_bf16(value: Value) -> bool:
    """Return whether numbers are bf16, or f32 that were cast from bf16."""
    node = value.node
    if value.dtype == BF16 or node is None:
        return value.dtype == BF16
    passed = node.op == "cast" or (OPS[node.op].transparent and not OPS[node.op].fills)
    floats = all(operand.dtype.is_float for operand in node.operands)
    return passed and floats and value.dtype == F32 and all(map(_is_bf16, node.operands))


def _packed(context: GroupContext, view: Value) -> Location:
    location = context.pack(view)
    assert location is not None, "what a weight is made of is constant"
    return location


def _reader(emitter: Emitter, value: Value, at: Callable[[Dims, Dim, Dims], Index]) -> LoadElement:
    def load(_: KernelBuilder, bi: Dims, oi: Dim, ki: Dims, lane: Lane | None) -> Register:
        return emitter.read(value, at(bi, oi, ki), lane, F32)

    return load
