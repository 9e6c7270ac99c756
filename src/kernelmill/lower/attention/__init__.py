"""Attention as one kernel: scores, softmax and the weighted sum of values, block by block."""

from kernelmill.lower.attention.emit import emit_attention
from kernelmill.lower.attention.plan import plan_attention
from kernelmill.lower.attention.schedule import AttentionSchedule
from kernelmill.lower.attention.spec import AttentionSpec

__all__ = ["AttentionSchedule", "AttentionSpec", "emit_attention", "plan_attention"]
