"""Many models for many machines: compiled once by any executor, kept in a shared store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmill.fleet.jobs import Job, read_jobs
from kernelmill.fleet.manifest import Cleaned, Pulled, clean, pack, pull

if TYPE_CHECKING:
    from kernelmill.fleet.dispatch import Failure, Progress
    from kernelmill.fleet.local import LocalPool, RayExecutor
    from kernelmill.fleet.run import Summary, precompile

__all__ = [
    "Cleaned",
    "Failure",
    "Job",
    "LocalPool",
    "Progress",
    "Pulled",
    "RayExecutor",
    "Summary",
    "clean",
    "pack",
    "precompile",
    "pull",
    "read_jobs",
]


def __getattr__(name: str) -> Any:
    # These import the compiler, which fetching does not need.
    homes = {
        "Failure": "dispatch",
        "LocalPool": "local",
        "Progress": "dispatch",
        "RayExecutor": "local",
        "Summary": "run",
        "precompile": "run",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
