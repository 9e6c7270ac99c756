"""Attention as one kernel: scores, softmax and the weighted sum of values, block by block."""

from kernelmill.lower.templates.attention.classes import (
    AttentionClass,
    emit_attention_classes,
    plan_attention_classes,
)
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    emit_attention,
    plan_attention,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec

__all__ = [
    "AttentionClass", "AttentionSchedule", "AttentionSpec", "emit_attention",
    "emit_attention_classes", "plan_attention", "plan_attention_classes",
]  # fmt: skip
