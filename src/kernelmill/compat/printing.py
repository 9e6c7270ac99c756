"""Operators that output tensors in compiled code without a graph break: `npu_print`, and
`save_npugraph_tensor`."""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.node import has_side_effect

from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError, file_errors
from kernelmill.ops.library import LIBRARY

_counts: dict[str, count[int]] = {}


def npu_print(*args: Any, summarize_size: int = 3, tensor_detail: bool = False) -> None:
    """Print texts, numbers and tensors, of each dim `summarize_size` elements at both ends (-1:
    all), with shape and dtype if `tensor_detail`. InputError without a tensor, ConfigError or
    ConfigTypeError for another option."""
    if type(summarize_size) is not int:
        raise ConfigTypeError(f"npu_print: summarize_size is {summarize_size!r}, which is no int")
    if summarize_size < -1 or summarize_size == 0:
        raise ConfigError(f"npu_print: summarize_size is {summarize_size}; give -1, or 1 or more")
    if type(tensor_detail) is not bool:
        raise ConfigTypeError(f"npu_print: tensor_detail is {tensor_detail!r}, which is no bool")
    for arg in args:
        if not isinstance(arg, (Tensor, str, bool, float, int)):
            raise ConfigTypeError(f"npu_print: {arg!r:.60} is no tensor, text or number")
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if not tensors:
        raise InputError("npu_print: there has to be a tensor among the arguments")
    texts = ["" if isinstance(arg, Tensor) else str(arg) for arg in args]
    places = [number for number, arg in enumerate(args) if isinstance(arg, Tensor)]
    torch.ops.kernelmill.npu_print(tensors, texts, places, summarize_size, tensor_detail)


def _print(
    tensors: list[Tensor], texts: list[str], places: list[int], edge: int, detail: bool
) -> None:
    shown = dict(zip(places, tensors, strict=True))
    parts = [_text(shown[i], edge, detail) if i in shown else t for i, t in enumerate(texts)]
    print(*parts, flush=True)


def _text(tensor: Tensor, edge: int, detail: bool) -> str:
    kept = tensor.detach().cpu()
    values = (kept.float() if kept.dtype == torch.bfloat16 else kept).numpy()
    text = np.array2string(
        values,
        max_line_width=sys.maxsize,
        threshold=0 if edge > 0 else values.size + 1,
        edgeitems=max(edge, 1),
        formatter={"all": _number},
    )
    return f"tensor({text}, shape={list(kept.shape)}, dtype={kept.dtype})" if detail else text


def _number(value: Any) -> str:
    """Format a number as TorchAir does: whole numbers and truth values without a point."""
    if not isinstance(value, np.floating):
        return str(value if isinstance(value, np.complexfloating) else int(value))
    return f"{value:.0f}" if value.is_integer() else f"{value:.9g}"


def save_npugraph_tensor(tensor: Tensor, *, save_path: str | None = None) -> None:
    """Write a tensor to `{save_path without .pt}_device_0_{n}.pt`, with the next number n for each
    call."""
    torch.ops.kernelmill.save_npugraph_tensor(tensor, save_path or "tensor.pt")


def _save(tensor: Tensor, path: str) -> None:
    stem, ending = os.path.splitext(os.path.abspath(path))
    number = next(_counts.setdefault(stem, count()))
    with file_errors(path):
        torch.save(tensor.detach().clone(), f"{stem}_device_0_{number}{ending or '.pt'}")


for _name, _schema, _function in (
    ("npu_print", "Tensor[] tensors, str[] texts, int[] places, int edge, bool detail", _print),
    ("save_npugraph_tensor", "Tensor tensor, str path", _save),
):
    LIBRARY.define(f"{_name}({_schema}) -> ()")
    LIBRARY.impl(_name, _function, "CPU")
    LIBRARY.impl(_name, lambda *args: None, "Meta")  # type: ignore[reportUnknownLambdaType]
    has_side_effect(getattr(torch.ops.kernelmill, _name).default)
