"""Programs compiled ahead of time: one file that a process with torch and kernelmill can run.

`compile` and `load` are imported at their first use: they need torch, other parts do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmill.aot.exporting import compile
    from kernelmill.aot.program import AotProgram, load

__all__ = ["AotProgram", "compile", "load"]


def __getattr__(name: str) -> Any:
    # Loading must not import torch.export, and with it torch._dynamo.
    homes = {"compile": "exporting", "AotProgram": "program", "load": "program"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
