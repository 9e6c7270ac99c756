"""`torch_npu.profiler`: torch's profiler, with the CPU in place of the NPU."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from kernelmill.core.log import warn_once


class ProfilerActivity:
    """The activities to profile: the CPU, by both names."""

    CPU = NPU = torch.profiler.ProfilerActivity.CPU


class _Profile(torch.profiler.profile):
    """Torch's profiler, which ignores steps after its end, as Ascend's samples have them."""

    def stop(self) -> None:
        super().stop()
        self.step = lambda: None


def profile(
    *, activities: Iterable[Any] | None = None, experimental_config: object = None, **options: Any
) -> torch.profiler.profile:
    """`torch.profiler.profile` of the CPU, with its options. An experimental_config is for an NPU,
    and is ignored with a warning."""
    if experimental_config is not None:
        warn_once("experimental_config of torch_npu.profiler", "it is for counters of an NPU")
    return _Profile(activities=[ProfilerActivity.CPU], **options)


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, analyse_flag: bool = True,
    async_mode: bool = False
) -> Any:  # fmt: skip
    """Return torch's handler. There is no further analysis."""
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)


class _Names:
    """Values of an experimental_config, each of which is its name."""

    def __getattr__(self, name: str) -> str:
        return name


MEMBERS: dict[str, Any] = {
    "ProfilerActivity": ProfilerActivity,
    "profile": profile,
    "_ExperimentalConfig": dict,
    **dict.fromkeys(("AiCMetrics", "ExportType", "ProfilerLevel"), _Names()),
    "schedule": partial(torch.profiler.schedule, warmup=0),
    "tensorboard_trace_handler": tensorboard_trace_handler,
    "supported_activities": lambda: {ProfilerActivity.CPU},
}
"""Members of the module."""
