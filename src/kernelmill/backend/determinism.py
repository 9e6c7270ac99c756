"""`torch.use_deterministic_algorithms` in traced code: AOTAutograd runs the calls while it traces,
and its graph has none of them."""

from __future__ import annotations

from typing import Any

from torch import fx

from kernelmill.config.super_kernel_marks import DETERMINISTIC_KEY
from kernelmill.torch_internals.dynamo import determinism_setter
from kernelmill.torch_internals.tracing import graph_modules


def note_determinism(gm: fx.GraphModule) -> None:
    """Mark the nodes after such a call with torch's mode (`torch.set_deterministic_debug_mode`),
    which nodes traced from them keep."""
    setter = determinism_setter.get()
    if setter is None:
        return
    for part in graph_modules(gm):
        mode: int | None = None
        for node in part.graph.nodes:
            if node.target is setter:
                mode = _mode(*node.args, **node.kwargs)
            elif mode is not None:
                node.meta["custom"] = {DETERMINISTIC_KEY: mode, **(node.meta.get("custom") or {})}


def _mode(enabled: Any, *, warn_only: Any = False) -> int:
    return 0 if not enabled else 1 if warn_only else 2
