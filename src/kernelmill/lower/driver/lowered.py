"""What lowering makes: of a program, of an operator by itself, and each kernel on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.schedule.template import Loss
from kernelmill.plan.ir import KernelRef, Plan


@dataclass(frozen=True)
class Lowered:
    """The plan, and by name the kernels that it launches, which template each comes from, what its
    launches lose against kernels for known sizes, and how it computes products of f32 if any."""

    plan: Plan
    kernels: Mapping[str, Kernel] = field(default_factory=dict[str, Kernel])
    templates: Mapping[str, str] = field(default_factory=dict[str, str])
    losses: Mapping[str, Sequence[Loss]] = field(default_factory=dict[str, Sequence[Loss]])
    products: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class LoweredOperator:
    """What one of an operator's graphs was lowered to, and what its symbols are in the program."""

    lowered: Lowered
    values: Mapping[str, Dim]


@dataclass(frozen=True)
class NewKernel:
    """A kernel as soon as it is known: its text, and the shapes of the tensors that it is first
    launched with, in the order of its buffers. No text: the kernel was made for another program.
    `losses` are as in `Lowered`, of the launch that it was made for."""

    kernel: Kernel
    text: str
    ref: KernelRef
    shapes: tuple[tuple[Dim, ...], ...]
    losses: Sequence[Loss] = ()


Announce = Callable[[NewKernel], None]
