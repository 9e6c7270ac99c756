"""Compiled kernels of a range become one launch, with the synchronisation they need."""

from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.launch_fusion import Formed, RangeReport, form

__all__ = ["Formed", "RangeReport", "driver_ir", "form"]
