"""Quotas of control groups, as files of the system tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.core.target.cpus import Cpus, quota


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        # A container sees its own group as the root, and its path from outside.
        (
            {"proc/self/cgroup": "0::/docker/1\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"},
            2.0,
        ),
        # The tightest of the groups around counts.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
            },
            1.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:cpuset:/\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_quotas_of_both_versions(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    assert quota(write(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("found", "usable"),
    [
        (Cpus(16, 16, 8, None), 8),
        (Cpus(16, 16, 8, 1.5), 2),
        (Cpus(16, 1, 1, 4.0), 1),
        (Cpus(16, 16, 8, 0.25), 1),
    ],
)
def test_threads_that_can_work_at_a_time(found: Cpus, usable: int) -> None:
    assert found.usable == usable
