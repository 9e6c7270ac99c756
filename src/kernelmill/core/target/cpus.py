"""Processors that this process may use: its affinity, and the quota of its control group.

Sources: sched_setaffinity(2); Linux, admin-guide/cgroup-v2.rst (cpu.max) and
scheduler/sched-bwc.rst (cpu.cfs_quota_us of version 1). A group's quota holds for the groups below
it too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kernelmill.core.dataclass import dataclass


@dataclass(frozen=True)
class Cpus:
    """Numbers of processors.

    online   processors that the machine has
    allowed  those that this process may run on
    cores    cores among the allowed: two threads of one core count once
    quota    processors' time that the control group grants, None without a limit
    """

    online: int
    allowed: int
    cores: int
    quota: float | None

    @property
    def usable(self) -> int:
        """Number of threads that can work at a time, each on a core of its own."""
        return max(1, min(self.cores, math.ceil(self.quota) if self.quota else self.cores))


def cpus(root: Path = Path("/")) -> Cpus:
    """Return the numbers for this process; the system's files are below `root`."""
    allowed = os.sched_getaffinity(0)
    cores = {_siblings(root, cpu) for cpu in allowed}
    return Cpus(os.cpu_count() or len(allowed), len(allowed), len(cores), quota(root))


def _siblings(root: Path, cpu: int) -> str:
    """Return the processors of this one's core, as text; the processor alone if unknown."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    return _read(path) or str(cpu)


def quota(root: Path = Path("/")) -> float | None:
    """Return the control group's CPU quota of this process, in processors."""
    limits: list[float] = []
    for version, folder in _groups(root):
        limit = _limit_v2(folder) if version == 2 else _limit_v1(folder)
        if limit is not None:
            limits.append(limit)
    return min(limits, default=None)


def _groups(root: Path) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of each control group around this process that can limit it. In a
    container its own group is the root of the mounted files, whatever its path says."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mounts = 2, ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            version, mounts = 1, [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"]
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for part in (inner, *inner.parents):
                yield version, root / mount / part


def _limit_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _limit_v1(folder: Path) -> float | None:
    granted, period = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if not granted or not period or int(granted) <= 0:
        return None
    return int(granted) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
