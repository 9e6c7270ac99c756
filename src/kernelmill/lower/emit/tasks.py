"""The position of the running task in a grid."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.views import unravel


def task_index(
    builder: KernelBuilder, sizes: Sequence[Dim], task: Dim | None = None
) -> tuple[Dim, ...]:
    """Return the index of a task, the running one by default, in a row-major grid of these sizes.

    Each position is a symbol of its own, so that expressions made of it stay short.
    """
    # A grid without tasks still needs an index for the code that never runs.
    grid = [1 if size == 0 else size for size in sizes]
    return tuple(
        position if isinstance(position, int) else builder.let(builder.index(position), 0, size - 1)
        for position, size in zip(
            unravel(builder.task if task is None else task, grid), grid, strict=True
        )
    )
