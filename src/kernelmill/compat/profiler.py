"""`torch_npu.profiler`: torch's profiler, with the CPU in place of the NPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernelmill.compat.warned import warn_once


class ProfilerActivity:
    """What is looked at: the CPU, by both names."""

    CPU = NPU = torch.profiler.ProfilerActivity.CPU


def profile(
    *, activities: Iterable[Any] | None = None, experimental_config: object = None, **options: Any
) -> torch.profiler.profile:
    """`torch.profiler.profile` of the CPU, with its options. An experimental_config is for an NPU,
    and is left out with a warning."""
    if experimental_config is not None:
        warn_once("experimental_config of torch_npu.profiler", "it is for counters of an NPU")
    return torch.profiler.profile(activities=[ProfilerActivity.CPU], **options)


def _experimental_config(**options: Any) -> dict[str, Any]:
    return options


MEMBERS: dict[str, Any] = {
    "ProfilerActivity": ProfilerActivity,
    "profile": profile,
    "_ExperimentalConfig": _experimental_config,
    "schedule": torch.profiler.schedule,
    "tensorboard_trace_handler": torch.profiler.tensorboard_trace_handler,
    "supported_activities": lambda: {ProfilerActivity.CPU},
}
"""What is in the module."""
