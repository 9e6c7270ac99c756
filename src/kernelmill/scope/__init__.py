"""Marks in a model's code: super-kernel ranges, streams, and the order of two operators."""

from kernelmill.scope.marks import stream_switch, super_kernel, wait_tensor

__all__ = ["stream_switch", "super_kernel", "wait_tensor"]
