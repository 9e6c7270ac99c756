"""One kernel for each group, and each distinct kernel once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.lowered import KernelFacts, Lowered
from kernelmill.lower.driver.naming import kernel_type
from kernelmill.lower.driver.placement import Work
from kernelmill.lower.driver.signature import Signature, signature_of
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.emit.buffer_marks import mark_buffers
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.search import Settle
from kernelmill.lower.schedule.template import (
    STATUS_BUFFER,
    Binding,
    GroupContext,
    Loss,
    Pack,
    Template,
)
from kernelmill.lower.templates.registry import template_for


@dataclass(frozen=True)
class Made:
    """A kernel bound to a group's memory: plan buffers in its order, work in ns, facts for reports,
    and its loss against a kernel for known sizes."""

    kernel: Kernel
    buffers: tuple[int, ...]
    work: Dim
    facts: KernelFacts
    loss: Loss


@dataclass(frozen=True)
class _Kept:
    """A kernel, and its buffers as local numbers of a signature."""

    kernel: Kernel
    slots: tuple[int, ...]
    work: Dim
    schedule: object
    loss: Loss


@dataclass(frozen=True)
class KernelCache:
    """Kernels, and how constants are packed for them, by what decides them. Graphs without symbols
    may share one: their groups' signatures have all sizes. `general` has operators lowered for all
    sizes, by the text of their graphs.

    A signature is a deep tuple, whose hash takes long: it is looked up once, for its number.
    """

    signatures: dict[tuple[Hashable, ...], int] = field(default_factory=dict)
    kernels: dict[tuple[Hashable, ...], _Kept] = field(default_factory=dict)
    packings: dict[Hashable, Hashable] = field(default_factory=dict)
    general: dict[str, Lowered | None] = field(default_factory=dict[str, "Lowered | None"])

    def number(self, signature: Signature) -> int:
        """Return the number of a signature, a new one at first sight."""
        return self.signatures.setdefault(signature.key, len(self.signatures))


@dataclass(frozen=True)
class KernelMaker:
    """Makes kernels for the groups of one graph.

    `stored` says where values live; `is_constant` whether parameters alone decide a value; `pack`
    stores a constant view once; `costs` are the graph's; products compute the values
    `dequantised_in_place` from smaller ones as they read them. What `settle` says of a schedule
    the cost model does not decide. `cache` has kernels made before.
    """

    machine: Machine
    stored: Callable[[Value], Location | None]
    is_constant: Callable[[Value], bool]
    pack: Pack
    costs: Costs
    dequantised_in_place: AbstractSet[Value]
    settle: Settle | None
    cache: KernelCache

    def make(self, work: Work) -> Made:
        """Make the kernel for the work. Raises UnsupportedError if no template takes it."""
        context = self._context(work)
        template = template_for(context)
        signature = signature_of(work.group, work.targets, context.stored)
        number = self.cache.number(signature)
        binding = template.bind(context)
        kind = (number, template.name, template.layout)
        candidate = OPEN if self.settle is None else self.settle(kind, template, context)
        packed = self._packed(binding, kind, candidate)
        buffers = tuple(signature.local(location.buffer) for location in packed.locations)
        key = (*kind, packed.layout, buffers)
        kept = self.cache.kernels.get(key)
        if kept is None:
            emitter = context.emitter(packed)
            time, schedule, loss = self._emit(
                context, template, binding, emitter, packed, candidate
            )
            mark_buffers(emitter.builder.kernel, self.machine)
            slots = tuple(b if b == STATUS_BUFFER else signature.local(b) for b in emitter.buffers)
            kept = _Kept(emitter.builder.kernel, slots, time, schedule, loss)
            self.cache.kernels[key] = kept
        facts = KernelFacts(template.name, kept.schedule, binding.f32_products)
        return _bind(kept, signature, facts)

    def _context(self, work: Work) -> GroupContext:
        own = {*work.group.internal, *work.group.roots}
        return GroupContext(
            work.group, work.targets, self.machine, lambda v: None if v in own else self.stored(v),
            self.dequantised_in_place, self.costs, self.is_constant, self.pack,
            kernel_type(work.nodes),
        )  # fmt: skip

    def _packed(self, binding: Binding[Any], kind: Hashable, candidate: Candidate) -> PackedWeights:
        if kind not in self.cache.packings:
            self.cache.packings[kind] = binding.packing(candidate)
        return binding.pack(self.cache.packings[kind])

    def _emit(
        self, context: GroupContext, template: Template[Any, Any], binding: Binding[Any],
        emitter: Emitter, packed: PackedWeights, candidate: Candidate,
    ) -> tuple[Dim, object, Loss]:  # fmt: skip
        if all(location.elements == 0 for location in context.targets.values()):
            emitter.builder.set_tasks(0)
            return 0, None, lambda _: 0.0
        spec = binding.spec(emitter, packed)
        schedule = template.schedule(spec, self.machine, candidate)
        template.emit(emitter, spec, schedule)
        return (
            template.cost(schedule),
            schedule,
            lambda sizes: template.loss(spec, schedule, sizes, self.machine),
        )


def _bind(kept: _Kept, signature: Signature, facts: KernelFacts) -> Made:
    buffers = tuple(
        slot if slot == STATUS_BUFFER else signature.buffers[slot] for slot in kept.slots
    )
    return Made(kept.kernel, buffers, kept.work, facts, kept.loss)
