"""Runs plans: links objects, binds arguments, launches; knows no IR but the plan."""

from kernelmill.runtime.dims import dims_needed
from kernelmill.runtime.program import DIMS_OBJECT, Program, load

__all__ = ["DIMS_OBJECT", "Program", "dims_needed", "load"]
