"""Marks in a model's code: super-kernel ranges, streams, and the order of two operators."""

from kernelmill.scope.marks import (
    data_dump,
    limit_threads,
    record,
    stream_switch,
    super_kernel,
    wait,
    wait_tensor,
)

__all__ = [
    "data_dump",
    "limit_threads",
    "record",
    "stream_switch",
    "super_kernel",
    "wait",
    "wait_tensor",
]
