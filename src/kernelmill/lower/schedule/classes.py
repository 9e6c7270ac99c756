"""One kernel with several bodies, chosen by a size that is known only at the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, maximum, minimum
from kernelmill.kernel.builder import KernelBuilder

T = TypeVar("T")


@dataclass(frozen=True)
class SizeClass(Generic[T]):
    """A class of sizes up to `most`, None for all others: its `tasks`, and `what` is run."""

    most: int | None
    tasks: Dim
    what: T


Body = Callable[[T, Dim, Dim], None]
"""`body(what, task, size)`: emits one task; the size and the task's number have ranges there that
are those of the class."""


def emit_by_size(
    builder: KernelBuilder, size: Dim, classes: Sequence[SizeClass[T]], body: Body[T]
) -> None:
    """Set the kernel's tasks and append the body for each class, smallest first, in a
    branch that its sizes take. A size of 0 has no tasks."""
    builder.set_tasks(tasks_by_size(size, classes))
    builder.kernel.classes = class_texts(size, classes)
    _branch(builder, size, classes, body)


def tasks_by_size(size: Dim, classes: Sequence[SizeClass[T]]) -> Dim:
    """Return the tasks: those of the class, picked by factors that are 1 within it, else 0."""
    *smaller, rest = classes
    tasks, larger = rest.tasks, rest.tasks
    for one in reversed(smaller):
        assert one.most is not None
        within = minimum(1, maximum(0, one.most + 1 - size))
        tasks = tasks + within * (one.tasks - larger)
        larger = one.tasks
    return tasks * minimum(1, size)


def class_texts(size: Dim, classes: Sequence[SizeClass[T]]) -> tuple[str, ...]:
    """Return the classes in words, for reports."""
    *smaller, _ = (one.most for one in classes)
    return (*(f"{size} <= {most}" for most in smaller), f"{size} > {smaller[-1]}")


def _branch(
    builder: KernelBuilder, size: Dim, classes: Sequence[SizeClass[T]], body: Body[T]
) -> None:
    first, *others = classes
    if first.most is None:
        _call(builder, first, size, body)
        return
    value = builder.index(size)
    with builder.when(builder.op("le", value, first.most)) as branch:
        _call(builder, first, builder.let(value, 1, first.most), body)
    with builder.otherwise(branch):
        _branch(builder, size, others, body)


def _call(builder: KernelBuilder, one: SizeClass[T], size: Dim, body: Body[T]) -> None:
    if one.tasks != 0:
        body(one.what, builder.let(builder.index(builder.task), 0, one.tasks - 1), size)
