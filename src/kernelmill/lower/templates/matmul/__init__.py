"""The contraction template: products as one register-tiled kernel."""

from kernelmill.lower.emit.packed import panel_shape
from kernelmill.lower.templates.matmul.classes import RowClass, emit_classes, plan_classes
from kernelmill.lower.templates.matmul.emit import emit_contraction
from kernelmill.lower.templates.matmul.schedule import Schedule, plan_contraction
from kernelmill.lower.templates.matmul.spec import Contraction, Operand

__all__ = [
    "Contraction", "Operand", "RowClass", "Schedule", "emit_classes",
    "emit_contraction", "panel_shape", "plan_classes", "plan_contraction",
]  # fmt: skip
