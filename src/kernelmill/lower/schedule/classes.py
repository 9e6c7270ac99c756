"""One kernel with several bodies, chosen by a size that is known only at the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, maximum, minimum
from kernelmill.kernel.builder import KernelBuilder

ScheduleT = TypeVar("ScheduleT")


@dataclass(frozen=True)
class SizeClass(Generic[ScheduleT]):
    """The schedule of sizes up to `most`, of all others with None, and its tasks for any of them
    but 0. With `exact` there is nothing else in the class than that size."""

    most: int | None
    schedule: ScheduleT
    tasks: Dim
    exact: bool = False


Body = Callable[[ScheduleT, Dim, Dim], None]
"""`body(schedule, task, size)`: emits one task; the size and the task's number have ranges there
that are those of the class."""


def emit_by_size(
    builder: KernelBuilder,
    size: Dim,
    classes: Sequence[SizeClass[ScheduleT]],
    body: Body[ScheduleT],
) -> None:
    """Set the kernel's tasks and append the body for each class, smallest first, in a
    branch that its sizes take. A size of 0 has no tasks."""
    builder.set_tasks(tasks_by_size(size, classes))
    builder.kernel.classes = class_texts(size, classes)
    _branch(builder, size, classes, body)


def tasks_by_size(size: Dim, classes: Sequence[SizeClass[Any]]) -> Dim:
    """Return the tasks: those of the class, picked by factors that are 1 within it, else 0."""
    *smaller, rest = classes
    tasks, larger = rest.tasks, rest.tasks
    for one in reversed(smaller):
        assert one.most is not None
        within = minimum(1, maximum(0, one.most + 1 - size))
        tasks = tasks + within * (one.tasks - larger)
        larger = one.tasks
    return tasks * minimum(1, size)


def class_texts(size: Dim, classes: Sequence[SizeClass[Any]]) -> tuple[str, ...]:
    """Return the classes in words, for reports."""
    *smaller, _ = (one.most for one in classes)
    return (*(f"{size} <= {most}" for most in smaller), f"{size} > {smaller[-1]}")


def _branch(
    builder: KernelBuilder,
    size: Dim,
    classes: Sequence[SizeClass[ScheduleT]],
    body: Body[ScheduleT],
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


def _call(
    builder: KernelBuilder, one: SizeClass[ScheduleT], size: Dim, body: Body[ScheduleT]
) -> None:
    if one.tasks != 0:
        task = builder.let(builder.index(builder.task), 0, one.tasks - 1)
        body(one.schedule, task, one.most if one.exact and one.most is not None else size)
