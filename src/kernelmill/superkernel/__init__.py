"""Launches that run together: those of a range as one launch, with the synchronisation they need;
others beside each other."""

from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.launch_fusion import Formed, RangeReport, form
from kernelmill.superkernel.side_by_side import run_side_by_side

__all__ = ["Formed", "RangeReport", "driver_ir", "form", "run_side_by_side"]
