"""Code for each of several cases, of which the first that holds runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder

Choice = tuple[Dim | None, Callable[[], None]]
"""What is emitted where the dim is positive; None: in all other cases."""


def choose(builder: KernelBuilder, choices: Sequence[Choice]) -> None:
    """Emit all of them, the last of which is for all other cases."""
    (positive, emit), *others = choices
    if positive is None:
        emit()
        return
    with builder.when(builder.op("gt", builder.index(positive), 0)) as branch:
        emit()
    with builder.otherwise(branch):
        choose(builder, others)
