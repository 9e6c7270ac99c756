"""Emits a task of a contraction that may find its rows while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kernelmill.core.dim import Dim, floordiv, mod, product
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import FindRows, Found

ContextT = TypeVar("ContextT", bound=ContractionContext[Any])


def emit_rows(context: ContextT, number: Dim, emit: Callable[[ContextT], None]) -> None:
    """Emit a task by `emit`, with the rows that exist; `number` is `TaskPlace.number`."""
    if context.spec.rows is None:
        emit(context)
    else:
        _emit_found_rows(context, number, context.spec.rows, emit)


def _emit_found_rows(
    context: ContextT, rest: Dim, find: FindRows, emit: Callable[[ContextT], None]
) -> None:
    """A task of a contraction that finds its rows: threads, which have neighbouring tasks, share
    the columns of a batch index and not the batch."""
    builder, size = context.builder, product(context.spec.batch)
    place = builder.let(builder.index(mod(rest, size)), 0, size - 1)
    found = find(builder, unravel(place, context.spec.batch))
    context = replace(
        context,
        spec=replace(context.spec, m=found.rows),
        batch=unravel(place, context.spec.batch),
        column_block=floordiv(rest, size),
    )
    first = builder.index(context.first_row_tile * context.schedule.rows)
    with builder.when(builder.op("gt", builder.index(found.rows), first)):
        emit(context)
    with builder.when(builder.op("eq", builder.index(context.row_block), 0)):
        _sums_of_nothing(context, found)


def _sums_of_nothing(context: ContractionContext[Any], found: Found) -> None:
    """Store zeros in the task's columns of the rows behind those that were found."""
    with (
        context.builder.loop(found.rows, found.end, prefix="m") as row,
        context.column_tiles() as tile,
        context.vectors(tile) as place,
    ):
        column = tile * context.schedule.width + place
        context.store(row.index, column, context.lane_at(column), context.zeros())
