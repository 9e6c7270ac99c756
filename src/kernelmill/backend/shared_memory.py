"""Arguments of a graph that share memory without torch's knowledge.

Torch tells memory apart by storages. Two tensors over one array (`torch.from_numpy`,
`torch.frombuffer`) have one each, and are traced as if a write to the one were not visible in the
other. In eager it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from kernelmill.compiler.linking import LoweredProgram
from kernelmill.plan.ir import TensorInput
from kernelmill.runtime.weights.contents import memory_behind
from kernelmill.runtime.weights.page_scan import overlap


class SharedMemory(Exception):
    """A graph that writes to an argument was called with shared memory. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("arguments that share memory are written to")


def with_storages_apart(
    call: Callable[..., Any], made: Sequence[LoweredProgram]
) -> Callable[..., Any]:
    """Wrap the `call` of a graph, compiled to these programs, so that it raises SharedMemory. A
    call without writes to arguments is returned unchanged."""
    if made and not any(map(_writes, made)):
        return call

    def checked(*args: Any) -> Any:
        if overlap([memory_behind(storage) for storage in _storages(args)]):
            raise SharedMemory
        return call(*args)

    return checked


def _writes(program: LoweredProgram) -> bool:
    entries = program.lowered.plan.inputs
    return any(isinstance(entry, TensorInput) and entry.updated for entry in entries)


def _storages(arguments: Iterable[Any]) -> set[torch.UntypedStorage]:
    return {
        value.untyped_storage()
        for value in arguments
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel()
    }
