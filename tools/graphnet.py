"""Graphs that GraphNet has captured: its samples as modules with their arguments.

A sample's model.py has a module that is given all tensors; classes in weight_meta.py and in
input_meta.py describe these.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_DESCRIPTIONS = ("weight_meta.py", "input_meta.py")


class CapturedGraph(nn.Module):
    """A graph that is given all tensors of its model: those in `kept` are not given again."""

    def __init__(self, graph: nn.Module, names: list[str], kept: Mapping[str, Any]) -> None:
        super().__init__()
        self.graph, self.names = graph, names
        for name, value in kept.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *args: Tensor) -> Any:
        given = iter(args)
        return self.graph(*(getattr(self, n) if hasattr(self, n) else next(given)
                            for n in self.names))  # fmt: skip


def sample(folder: Path) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a sample's module, with weights as they are described, and the other arguments."""
    graph = _module(folder / "model.py").GraphModule().eval()
    files = [file for file in map(folder.joinpath, _DESCRIPTIONS) if file.exists()]
    metas = [each for file in files for each in vars(_module(file)).values()]
    values = {meta.name: _described(meta) for meta in metas if hasattr(meta, "shape")}
    names = list(inspect.signature(graph.forward).parameters)
    kept = {n: v for n, v in values.items() if n.startswith("L_self_") or isinstance(v, int)}
    args = tuple(values[name] for name in names if name not in kept)
    return CapturedGraph(graph, names, kept), args


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _described(meta: Any) -> Any:
    """A tensor as one of their classes says; a number where it stands for a size."""
    dtype = getattr(torch, meta.dtype.removeprefix("torch."))
    if meta.data is not None:
        value = torch.tensor(meta.data, dtype=dtype).reshape(meta.shape)
        return value if meta.shape or meta.name.startswith("L_") else value.item()
    if not dtype.is_floating_point:
        return torch.zeros(meta.shape, dtype=dtype)
    value = torch.randn(meta.shape) * (meta.std or 0.0) + (meta.mean or 0.0)
    return (value.abs() if "running_var" in meta.name else value).to(dtype)
