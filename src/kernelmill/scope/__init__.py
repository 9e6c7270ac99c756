"""Marks in a model's code: super-kernel ranges and streams."""

from kernelmill.scope.marks import stream_switch, super_kernel

__all__ = ["stream_switch", "super_kernel"]
