"""The recurrent template: LSTM, GRU and simple cells over all steps of time."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.template import Binding, GroupContext, NodeTemplate
from kernelmill.lower.templates.recurrent.emit import emit_recurrent
from kernelmill.lower.templates.recurrent.spec import Load, RecurrentSpec, plan_recurrent
from kernelmill.lower.weights.panel_views import padded


@dataclass(frozen=True)
class RecurrentBinding(Binding[RecurrentSpec]):
    """A recurrent layer, whose weight is packed as it is read where it is constant."""

    context: GroupContext

    @property
    def node(self) -> Node:
        """The layer."""
        assert self.context.group.seed is not None
        return self.context.group.seed

    def pack(self, packing: None) -> PackedWeights:
        """Store panels (panel, k, gate, lane) of the weight (k, gates * size)."""
        weight, lanes = self.node.operands[1], self.context.machine.isa.lanes(F32)
        size, wide = weight.shape
        assert isinstance(size, int) and isinstance(wide, int)
        builder, panels = GraphBuilder("panels", self.node.origin), part_count(size, lanes)
        view = builder.emit("reshape", weight, shape=(size, wide // size, size))
        view = padded(builder, view, (size, wide // size, panels * lanes))
        view = builder.emit("reshape", view, shape=(size, wide // size, panels, lanes))
        view = builder.emit("permute", view, dims=(2, 0, 1, 3))
        location = self.context.pack(view)
        return PackedWeights() if location is None else PackedWeights(b=location, packing=view)

    def spec(self, emitter: Emitter, packed: PackedWeights) -> RecurrentSpec:
        """What is computed."""
        gates, weight, state, *more = self.node.operands
        size, target = weight.shape[0], self.context.targets[self.node.result]
        assert isinstance(size, int)

        def load(value: Value) -> Load:
            return lambda index, lane: emitter.read(value, index, lane, F32)

        def load_weight(k: Dim, gate: int, first: Dim, lane: Lane) -> Register:
            if packed.b is None:
                index = k, first + gate * size + lane.index
                return emitter.read(weight, index, lane, F32)
            block = emitter.param(packed.b, "in")
            place = (first * size + k * lane.count) * (weight.shape[1] // size)
            place = place + gate * lane.count
            return emitter.builder.load(block, place, F32, lane.count)

        return RecurrentSpec(
            str(self.node.attrs["cell"]), gates.shape[0], state.shape[0], size,
            bool(self.node.attrs["backward"]), load(gates), load_weight, load(state),
            load(more[0]) if more else None,
            lambda index, lane, value: emitter.write(target, index, lane, value),
        )  # fmt: skip


RECURRENT = NodeTemplate(
    "recurrent", frozenset({"recurrent"}), RecurrentBinding, plan_recurrent, emit_recurrent
)
"""The states after each step, rows of the batch by themselves."""
