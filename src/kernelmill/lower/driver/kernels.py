"""One kernel for each group, and each distinct kernel once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from kernelmill.core.dim import Dim
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.machine import Machine
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.naming import kernel_type
from kernelmill.lower.driver.search import STATUS_BUFFER, Trials
from kernelmill.lower.driver.signature import Signature, signature_of
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.groups import Group
from kernelmill.lower.templates.convolution.bind import ConvolutionEmitter, convolves_last
from kernelmill.lower.templates.indexed import emit_indexed
from kernelmill.lower.templates.map_reduce.nest import Nest, emit_nest
from kernelmill.lower.templates.matmul.bind import ContractionEmitter, Pack, PanelWidths


@dataclass(frozen=True)
class Made:
    """A kernel bound to a group's memory: plan buffers in its order, and the work in ns."""

    kernel: Kernel
    buffers: tuple[int, ...]
    work: Dim


@dataclass(frozen=True)
class _Template:
    kernel: Kernel
    slots: tuple[int, ...]
    work: Dim


@dataclass(frozen=True)
class Templates:
    """Kernels by what decides them. Graphs without symbols may share one: their kernels have all
    sizes in their keys."""

    made: dict[tuple[Hashable, ...], _Template] = field(default_factory=dict)
    widths: dict[tuple[Hashable, ...], PanelWidths] = field(default_factory=dict)


UNNAMED = "kernel"
"""The name of a kernel whose text is not made yet."""


class KernelMaker:
    """Makes kernels for the groups of one graph.

    `stored` says where values live; `pack` stores a constant view once; `costs` are
    the graph's; `order` sorts a group's nodes as the program has them; the values
    `within` products are computed there from smaller ones. With `trials` the schedules of
    contractions and attentions come from there. `templates` are kernels made before.
    """

    def __init__(
        self,
        machine: Machine,
        stored: Callable[[Value], Location | None],
        pack: Pack,
        costs: Costs,
        order: Mapping[Node, int],
        within: AbstractSet[Value] = frozenset(),
        trials: Trials | None = None,
        templates: Templates | None = None,
    ) -> None:
        self.machine = machine
        self.stored = stored
        self.pack = pack
        self.costs = costs
        self.order = order
        self.within = within
        self.trials = trials
        templates = templates or Templates()
        self._made = templates.made
        self._widths = templates.widths

    def nodes(self, group: Group) -> list[Node]:
        """The group's nodes in program order."""
        return sorted(group.nodes, key=lambda node: self.order.get(node, 0))

    def make(self, group: Group, targets: Mapping[Value, Location]) -> Made:
        """The kernel of a group whose roots go to `targets`.

        Raises UnsupportedError for what has no template.
        """
        emitter = self._begin(group, targets)
        builder = emitter.builder
        signature = signature_of(group, targets, emitter.stored)
        contraction = None
        if group.kind in ("contract", "attention"):
            emits = ConvolutionEmitter if convolves_last(group, targets) else ContractionEmitter
            tiling = None
            if self.trials is not None:
                tiling = self.trials.settle(signature.key, group, targets, self._begin)
            contraction = emits(emitter, group, targets, self.machine, self.pack, tiling)
        if contraction is not None and group.kind == "contract":
            widths = self._widths.get(signature.key)
            if widths is None:
                widths = self._widths[signature.key] = contraction.panel_widths()
            contraction.pack_constants(widths)
        for buffer in emitter.buffers:
            signature.local(buffer)
        key = (*signature.key, *(() if contraction is None else contraction.packed_key))
        template = self._made.get(key)
        if template is None:
            work = self._emit(group, targets, emitter, contraction)
            slots = tuple(b if b == STATUS_BUFFER else signature.local(b) for b in emitter.buffers)
            template = self._made[key] = _Template(builder.kernel, slots, work)
        return _bind(template, signature)

    def _begin(self, group: Group, targets: Mapping[Value, Location]) -> Emitter:
        """An emitter of an empty kernel for this group."""
        own = {*group.internal, *group.roots}
        stored: Callable[[Value], Location | None] = lambda v: None if v in own else self.stored(v)  # noqa: E731
        builder = KernelBuilder(UNNAMED, kernel_type(self.nodes(group)))
        emitter = Emitter(builder, stored, self.within)
        for location in targets.values():
            # No code stores what has no elements; that there is such a tensor must be known.
            if location.elements == 0:
                emitter.param(location, "out")
        return emitter

    def _emit(
        self,
        group: Group,
        targets: Mapping[Value, Location],
        emitter: Emitter,
        contraction: ContractionEmitter | None,
    ) -> Dim:
        if all(location.elements == 0 for location in targets.values()):
            emitter.builder.set_tasks(0)
            return 0
        if contraction is not None:
            return contraction.emit()
        if group.kind == "nest":
            return emit_nest(emitter, Nest(group, targets, self.costs), self.machine)
        node = group.seed
        if node is None or group.kind not in ("scan", "sort", "scatter"):
            raise UnsupportedError(f"no template for a group of kind {group.kind}")
        return emit_indexed(emitter, node, targets[node.result], self.machine)


def _bind(template: _Template, signature: Signature) -> Made:
    buffers = tuple(
        slot if slot == STATUS_BUFFER else signature.buffers[slot] for slot in template.slots
    )
    return Made(template.kernel, buffers, template.work)
