"""torch.distributed's default store."""

from __future__ import annotations

from typing import Any

from kernelmill.torch_internals.registry import internal


@internal(
    "groups.default_store",
    reason="the processes of a machine sharing a build of static kernels",
    fallback="each process builds all static kernels",
)
def default_store() -> Any:
    """Return the function that gives the store of the default process group."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store
