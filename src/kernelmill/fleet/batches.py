"""Batches of kernels for a worker, large enough that sending them costs little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.fleet.task import CompileTask

BATCH_SECONDS = 0.3
"""Work in a batch: Dask's processes take 15 ms of the processors' time to send one, a twentieth."""

_PARTS = 2
"""Divisor of the work left for each worker that limits a batch, so that the last are small."""

_SECONDS, _SECONDS_OF_CHARACTER = 2e-3, 4e-6
"""First estimate of a kernel's time, fitted to 88 kernels of models: half of them take between 0.8
and 1.4 times as long."""


class Costs:
    """Estimates of the seconds of tasks, from the lengths of their texts and the tasks finished."""

    def __init__(self) -> None:
        self._guessed = self._spent = 1.0  # as if one second had been guessed well

    def of(self, task: CompileTask) -> float:
        """Return the estimated seconds of a task."""
        return _at_first_sight(task) * self._spent / self._guessed

    def learn(self, task: CompileTask, seconds: float) -> None:
        """Record the time of a finished task."""
        self._guessed += _at_first_sight(task)
        self._spent += seconds


def _at_first_sight(task: CompileTask) -> float:
    return _SECONDS + _SECONDS_OF_CHARACTER * sum(len(text) for _, text in task.key.ingredients)


def batches(
    tasks: Sequence[CompileTask], costs: Costs, workers: int
) -> Iterator[tuple[CompileTask, ...]]:
    """Yield all tasks, the longest first, in batches of `BATCH_SECONDS`, smaller at the end."""
    timed = sorted(((costs.of(task), task.name, task) for task in tasks), reverse=True)
    left = sum(seconds for seconds, _, _ in timed)
    batch: list[CompileTask] = []
    filled, limit = 0.0, min(BATCH_SECONDS, left / (_PARTS * workers))
    for seconds, _, task in timed:
        if batch and filled + seconds > limit:
            yield tuple(batch)
            left -= filled
            batch, filled = [], 0.0
            limit = min(BATCH_SECONDS, left / (_PARTS * workers))
        batch.append(task)
        filled += seconds
    if batch:
        yield tuple(batch)
