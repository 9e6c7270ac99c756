"""torchvision and torchaudio beside a torch for CPUs.

The registry's wheels of these are built for CUDA: their libraries ask for parts of torch that a
build for CPUs does not have, and importing them fails. What of them is Python works without.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@functools.cache
def make_importable() -> None:
    """Where operators of torchvision cannot be loaded, its `nms` is one of ours; torchaudio goes
    without its own."""
    if not _loads("torchvision", "_C.so"):
        _declare()
    if not _loads("torchaudio", "lib/_torchaudio.abi3.so"):
        stands_in: Any = ModuleType("torchaudio._extension")
        stands_in._IS_TORCHAUDIO_EXT_AVAILABLE = stands_in._IS_ALIGN_AVAILABLE = False
        stands_in.fail_if_no_align = lambda function: function
        sys.modules["torchaudio._extension"] = stands_in


def _loads(package: str, file: str) -> bool:
    """Whether a library of a package loads; True where the package is not there."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return True
    try:
        torch.ops.load_library(Path(spec.origin).parent / file)
    except OSError:
        return False
    return True


_declared: list[Any] = []


def _declare() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        library.define(name + schema)
    library.impl("nms", _nms, "CPU")
    _declared.append(library)  # it declares for as long as it lives


def _nms(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    """The numbers of boxes (n, 4), the best first, each of which overlaps none before it by more
    than `most` of their union."""
    order = scores.argsort(descending=True, stable=True)
    left, top, right, bottom = boxes.unbind(1)
    areas = (right - left) * (bottom - top)
    kept: list[int] = []
    for number in order.tolist():
        width = (right[number].minimum(right[kept]) - left[number].maximum(left[kept])).clamp(0)
        height = (bottom[number].minimum(bottom[kept]) - top[number].maximum(top[kept])).clamp(0)
        common = width * height
        if not bool((common / (areas[number] + areas[kept] - common) > most).any()):
            kept.append(number)
    return torch.tensor(kept, dtype=torch.int64)
