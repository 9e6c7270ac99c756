"""ONNX Runtime and OpenVINO: files of models, int8 ones too, and what runs these.

Both get as many threads as torch has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def export_onnx(
    path: Path, model: nn.Module, args: tuple[Tensor, ...], *, external_data: bool = False,
    **options: Any,
) -> None:  # fmt: skip
    """Write a model as ONNX has it, in one file or with weights in another."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        model, args, path, dynamo=True, verbose=False, external_data=external_data, **options
    )


def quantise_onnx(path: Path, examples: Iterable[Tensor], small: Path) -> None:
    """Write an ONNX model of one input in int8, by ONNX Runtime's own tool: static ranges of the
    examples, pairs of quantisation, a scale of weights for each channel."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    (entry,) = onnx_session(path).get_inputs()
    ready = small.with_name(f"ready-{small.name}")
    quant_pre_process(path, ready)
    quantize_static(
        ready, small, _Examples(entry.name, examples), per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    ready.unlink()


class _Examples:
    """What ONNX Runtime's tool takes examples from."""

    def __init__(self, name: str, examples: Iterable[Tensor]) -> None:
        self._feeds = iter([{name: each.numpy()} for each in examples])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def onnx_session(path: Path) -> Any:
    """Return ONNX Runtime's session for a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(str(path), options)


def open_vino_request(model: Any, precision: str = "f32") -> Any:
    """Return OpenVINO's request for a model of it, or for a file."""
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": precision,
    }  # fmt: skip
    return openvino.Core().compile_model(model, "CPU", options).create_infer_request()
