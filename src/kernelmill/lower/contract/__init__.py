"""The contraction template: matmul, linear and convolution as one register-tiled kernel."""

from kernelmill.lower.contract.classes import RowClass, emit_classes, plan_classes
from kernelmill.lower.contract.emit import emit_contraction
from kernelmill.lower.contract.panels import panel_shape
from kernelmill.lower.contract.schedule import Schedule
from kernelmill.lower.contract.spec import Contraction, Operand, Window
from kernelmill.lower.contract.tiles import plan_contraction

__all__ = [
    "Contraction", "Operand", "RowClass", "Schedule", "Window", "emit_classes",
    "emit_contraction", "panel_shape", "plan_classes", "plan_contraction",
]  # fmt: skip
