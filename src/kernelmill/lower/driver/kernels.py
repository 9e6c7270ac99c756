"""One kernel for each group, with its type name ("Square", "MatMulAddGelu"), and each distinct
kernel once.

Two fusion groups are the same kernel if their structural keys, without names and buffer numbers,
are equal. So twenty-four equal layers cost one lowering. Buffers are numbered in the order of the
walk, so equal groups also share memory between the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Any

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.lowered import KernelFacts, Lowered
from kernelmill.lower.driver.placement import Work
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.emit.context import mark_buffers
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.groups import FusionGroup
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


@dataclass
class Signature:
    """`key` compares; `buffers` are the plan's buffers by local number."""

    key: tuple[Hashable, ...] = ()
    buffers: list[int] = field(default_factory=list[int])

    def local(self, buffer: int) -> int:
        """Return the local number of a plan buffer, a new one at first sight."""
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return self.buffers.index(buffer)


def signature_of(
    group: FusionGroup,
    targets: Mapping[Value, Location],
    stored: Callable[[Value], Location | None],
) -> Signature:
    """Return the signature of a group. `stored` must give None for the group's own members."""
    return _Walk(group, targets, stored).run()


class _Walk:
    def __init__(
        self,
        group: FusionGroup,
        targets: Mapping[Value, Location],
        stored: Callable[[Value], Location | None],
    ) -> None:
        self.group = group
        self.targets = targets
        self.stored = stored
        self.signature = Signature()
        self.numbers: dict[Value, int] = {}
        self.entries: list[Hashable] = []

    def run(self) -> Signature:
        group = self.group
        roots = tuple(
            (self._visit(value), index, self._place(self.targets[value]))
            for value, index in group.roots.items()
        )
        seed = () if group.seed is None else tuple(map(self._visit, group.seed.results))
        internal = tuple((self._visit(value), index) for value, index in group.internal.items())
        extents = tuple(group.extents.items())
        axes = (tuple(a.name for a in group.outer), tuple(a.name for a in group.inner))
        self.signature.key = (
            group.kind, roots, seed, internal, extents, axes, tuple(self.entries),
        )  # fmt: skip
        return self.signature

    def _place(self, location: Location) -> Hashable:
        buffer = self.signature.local(location.buffer)
        return (buffer, location.dtype, location.strides, location.elements, location.offset)

    def _visit(self, value: Value) -> int:
        known = self.numbers.get(value)
        if known is not None:
            return known
        location = self.stored(value)
        entry: Hashable
        if location is not None:
            entry = (self._place(location), value.shape)
        elif value.node is None:
            raise AssertionError(f"{value} is neither stored nor computed")
        else:
            node = value.node
            operands = tuple([self._visit(operand) for operand in node.operands])
            attrs = tuple([(name, repr(attr)) for name, attr in sorted(node.attrs.items())])
            which = node.results.index(value)
            entry = (node.op, operands, attrs, which, value.dtype, value.shape)
        number = self.numbers[value] = len(self.entries)
        self.entries.append(entry)
        return number


MOST_PARTS = 4
"""A fused kernel is named after so many operators; the rest are in its report."""


def kernel_type(nodes: Sequence[Node]) -> str:
    """Return a kernel's operators in CamelCase, the heaviest first; "Copy" for views only."""
    computing = [
        n for n in nodes if not OPS[n.op].transparent and OPS[n.op].kind is not OpKind.SOURCE
    ]
    ranked = sorted(computing, key=lambda n: _RANK.get(OPS[n.op].kind, 9))
    parts: list[str] = []
    for node in ranked:
        part = operator_name(node)
        if part not in parts:
            parts.append(part)
    if not parts:
        return "Copy"
    return "".join(parts[:MOST_PARTS]) + ("Etc" if len(parts) > MOST_PARTS else "")


_RANK = {
    OpKind.CONTRACT: 0, OpKind.ATTENTION: 0, OpKind.SCAN: 1, OpKind.WHOLE: 1, OpKind.SCATTER: 1,
    OpKind.REDUCE: 2, OpKind.GATHER: 3,
}  # fmt: skip


def operator_name(node: Node) -> str:
    """Return the operator's name in CamelCase; a product of a value with itself is a Square."""
    if node.op == "mul" and node.operands[0] is node.operands[1]:
        return "Square"
    return OPS[node.op].title


def launch_mark(nodes: Sequence[Node]) -> Mark:
    """The mark of the last marked operator that computes something: a kernel that does work of a
    range belongs to it. One with an operator that was taken out of its range is in none. What one
    of them waits for the kernel waits for, and what it makes with them is there when all are."""
    marks = [node.mark for node in nodes if node.mark and OPS[node.op].kind is not OpKind.VIEW]
    if not marks or any(mark.taken_out for mark in marks):
        return UNMARKED
    awaited = frozenset[int]().union(*(mark.awaited for mark in marks))
    given = frozenset[int]().union(*(mark.given for mark in marks))
    return marks[-1].with_events(awaited - given, given)


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
