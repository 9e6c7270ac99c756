"""Kernels put together for a worker: enough that sending them costs little beside the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.fleet.task import CompileTask

BATCH_SECONDS = 0.3
"""Of work in a batch: Dask's processes take 15 ms of the processors' time to send one, which is a
twentieth."""

_PARTS = 2
"""A batch has at most this part of what is left for each worker, so that the last are small."""

_SECONDS, _SECONDS_OF_CHARACTER = 2e-3, 4e-6
"""What a kernel takes at first sight, fitted to 88 kernels of models: half of them take between
0.8 and 1.4 times as long."""


class Costs:
    """Seconds that tasks take, by the lengths of their texts and by those that have come back."""

    def __init__(self) -> None:
        self._guessed = self._spent = 1.0  # as if one second had been guessed well

    def of(self, task: CompileTask) -> float:
        """What a task takes probably."""
        return _at_first_sight(task) * self._spent / self._guessed

    def learn(self, task: CompileTask, seconds: float) -> None:
        """A task has taken so long."""
        self._guessed += _at_first_sight(task)
        self._spent += seconds


def _at_first_sight(task: CompileTask) -> float:
    return _SECONDS + _SECONDS_OF_CHARACTER * sum(len(text) for _, text in task.key.ingredients)


def batches(
    tasks: Sequence[CompileTask], costs: Costs, workers: int
) -> Iterator[tuple[CompileTask, ...]]:
    """All of these, the longest first, in parts of `BATCH_SECONDS` and less towards the end."""
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
