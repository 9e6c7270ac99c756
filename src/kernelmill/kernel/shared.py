"""Checks the accesses of a run to outputs `over` inputs, whether or not they share memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import Array

_NOBODY, _SEVERAL = -1, -2


class SharedMemory:
    """The tasks that have read and written each element that two buffers may share."""

    def __init__(self, kernel: Kernel, memory: Mapping[str, Array]) -> None:
        self._pairs = [(buffer.name, name) for buffer in kernel.buffers for name in buffer.over]
        names = {name for pair in self._pairs for name in pair}
        self._tasks = {name: np.full(len(memory[name]), _NOBODY) for name in names}

    def watches(self, buffer: str) -> bool:
        """Return whether another buffer may share its memory."""
        return buffer in self._tasks

    def accessed(self, buffer: str, places: Array, task: int) -> str:
        """Note a task's reads or writes; return why they are wrong, or "".

        An element of the input is read by the task that writes it, before that. What that task
        has written itself it may write again.
        """
        if not self.watches(buffer):
            return ""
        for output, source in self._pairs:
            if buffer == source:
                written = _of(self._tasks[output], places)
                if (written != _NOBODY).any():
                    return f"{output}, which may lie over {source}, has been written there"
            elif buffer == output:
                readers = _of(self._tasks[source], places)
                if ((readers != _NOBODY) & (readers != task)).any():
                    return f"another task has read {source} there, over which {output} may lie"
        tasks, before = self._tasks[buffer], self._tasks[buffer][places]
        tasks[places] = np.where((before == _NOBODY) | (before == task), task, _SEVERAL)
        return ""


def _of(tasks: Array, places: Array) -> Array:
    return tasks[places[places < len(tasks)]]
