"""The attention template: online softmax over blocks of keys, in one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.attention.bind import AttentionBinding
from kernelmill.lower.templates.attention.bind_flex import FlexBinding
from kernelmill.lower.templates.attention.classes import (
    AttentionClasses,
    attention_loss,
    emit_attention_classes,
    plan_attention_classes,
)
from kernelmill.lower.templates.attention.schedule import attention_candidates
from kernelmill.lower.templates.attention.spec import AttentionSpec


class AttentionTemplate(Template[AttentionSpec, AttentionClasses]):
    """softmax(Q K^T * scale + mask) V. A schedule is a body for each class of numbers of query
    rows, the last for all others."""

    name = "attention"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around an attention node."""
        return context.group.kind is GroupKind.ATTENTION

    def bind(self, context: GroupContext) -> AttentionBinding | FlexBinding:
        """Bind the node's operands and mask."""
        seed = context.group.seed
        flex = seed is not None and seed.op == "flex_attention"
        return FlexBinding(context) if flex else AttentionBinding(context)

    def schedule(
        self, spec: AttentionSpec, machine: Machine, candidate: Candidate
    ) -> AttentionClasses:
        """Plan a schedule for each class of sizes. UnsupportedError for a depth of 0."""
        return plan_attention_classes(spec, machine, candidate)

    def candidates(self, spec: AttentionSpec, schedule: AttentionClasses) -> Sequence[Candidate]:
        """Return other blocks of rows and keys."""
        return attention_candidates(spec, schedule[-1].schedule)

    def cost(self, schedule: AttentionClasses) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule[-1].schedule.work

    def loss(
        self, spec: AttentionSpec, schedule: AttentionClasses, sizes: Mapping[str, int],
        machine: Machine,
    ) -> float:  # fmt: skip
        """Return 0 where rows and keys are known, and blocks are those of the sizes alone."""
        return attention_loss(spec, schedule, sizes, machine)

    def emit(self, emitter: Emitter, spec: AttentionSpec, schedule: AttentionClasses) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emit_attention_classes(emitter.builder, spec, schedule)
