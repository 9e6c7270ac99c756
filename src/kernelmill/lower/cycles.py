"""What a processor does in a cycle, as the cost models of all kernels take it.

Round figures for cores of about 4 GHz with a shared cache behind their own; schedules are chosen by
comparing estimates, so that the relations count.
"""

from __future__ import annotations

CYCLES_PER_NANOSECOND = 4

STREAM_BYTES = 16
"""What comes from beyond the second-level cache in one cycle."""

TASK_CYCLES = 400
"""Of beginning a task."""

THREADS = (1, 2, 4, 8, 16)
"""Teams that a division into tasks is judged by: the machine's own is not known beforehand."""
