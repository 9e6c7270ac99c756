"""The results of lowering: of a program, of an operator by itself, of each kernel on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.schedule.template import Loss
from kernelmill.plan.ir import KernelRef, Plan


@dataclass(frozen=True)
class KernelFacts:
    """The facts that reports show about a kernel besides its code.

    template      the name of the template that it comes from
    schedule      the template's; `print_schedule` (lower/schedule/text.py) makes text of it, None
                  where there is nothing to compute
    f32_products  how it computes products of f32, "" where it has none
    """

    template: str = ""
    schedule: object = None
    f32_products: str = ""


@dataclass(frozen=True)
class Lowered:
    """The plan, its kernels by name, facts about each, and the loss of its launches against kernels
    for known sizes."""

    plan: Plan
    kernels: Mapping[str, Kernel] = field(default_factory=dict[str, Kernel])
    facts: Mapping[str, KernelFacts] = field(default_factory=dict[str, KernelFacts])
    losses: Mapping[str, Sequence[Loss]] = field(default_factory=dict[str, Sequence[Loss]])


@dataclass(frozen=True)
class LoweredOperator:
    """The lowered form of an operator's graph, and its symbols' values in the program."""

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
