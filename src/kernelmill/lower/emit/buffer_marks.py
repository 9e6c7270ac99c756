"""Marks on the buffers of a finished kernel: alias and non-temporal."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.core.target.machine import Machine
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.ir import Buffer, Kernel


def mark_buffers(kernel: Kernel, machine: Machine) -> None:
    """Mark the outputs that may overwrite inputs, and those too large to stay in a cache."""
    inputs = overwritable(kernel)

    def marked(buffer: Buffer) -> Buffer:
        over = tuple(sorted(inputs.get(buffer.name, ())))
        return replace(buffer, over=over, nontemporal=_passes_caches(buffer, machine))

    kernel.buffers[:] = map(marked, kernel.buffers)


def _passes_caches(buffer: Buffer, machine: Machine) -> bool:
    elements = buffer.elements
    if buffer.access != "out" or not isinstance(elements, int) or not machine.isa.has_nontemporal:
        return False
    return elements * buffer.dtype.bytes >= machine.shared_bytes
