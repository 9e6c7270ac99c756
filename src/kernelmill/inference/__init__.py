"""Serving: gears for a finite set of sizes, and methods compiled once for all processes.

Functions that compile or pack are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmill.core.interpreter import collection_paused
from kernelmill.inference.dim_gears import set_dim_gears
from kernelmill.inference.record_shapes import record_shapes

if TYPE_CHECKING:
    from kernelmill.inference.cached_method import cache_compile
    from kernelmill.inference.cached_text import readable_cache
    from kernelmill.inference.packing import finish_packing, move_weights_to_disk

__all__ = [
    "cache_compile",
    "finish_packing",
    "move_weights_to_disk",
    "readable_cache",
    "record_shapes",
    "set_dim_gears",
]


def __getattr__(name: str) -> Any:
    # The runtime takes 0.1 s to import, which scripts that compile nothing need not wait for.
    homes = {
        "cache_compile": "cached_method",
        "readable_cache": "cached_text",
        "finish_packing": "packing",
        "move_weights_to_disk": "packing",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with collection_paused():
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
