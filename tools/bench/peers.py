"""ONNX Runtime and OpenVINO: files of models, int8 ones too, and what runs these.

Both get as many threads as torch has. Nothing here imports kernelmill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class FirstResult(nn.Module):
    """A model that returns its first tensor alone, for exporters that know no result classes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, *args: Tensor) -> Tensor:
        return first_tensor(self.model(*args))


def first_tensor(result: Any) -> Tensor:
    """The first tensor of a nested result: the hidden states, or the logits."""
    return result if isinstance(result, Tensor) else result[0]


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


def onnx_session(path: Path, **settings: Any) -> Any:
    """Return ONNX Runtime's session for a file, with these of its settings."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for name, value in {"intra_op_num_threads": torch.get_num_threads(), **settings}.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(str(path), options)


def onnx_call(path: Path, **settings: Any) -> Callable[..., Tensor]:
    """Return what such a session computes of tensors, in the order of its inputs."""
    session = onnx_session(path, **settings)
    names = [entry.name for entry in session.get_inputs()]

    def call(*args: Tensor) -> Tensor:
        feeds = {name: arg.numpy() for name, arg in zip(names, args, strict=True)}
        return torch.from_numpy(session.run(None, feeds)[0])

    return call


def open_vino_call(model: Any, **options: Any) -> Callable[..., Tensor]:
    """Return what a request of OpenVINO computes of tensors, in the order of its inputs."""
    request = open_vino_request(model, **options)

    def call(*args: Tensor) -> Tensor:
        request.infer([arg.numpy() for arg in args], share_inputs=True)
        return torch.from_numpy(request.get_output_tensor(0).data.copy())

    return call


def open_vino_request(model: Any, precision: str = "f32", **options: Any) -> Any:
    """Return OpenVINO's request for a model of it, or for a file, with these of its options."""
    import openvino

    options |= {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": precision,
    }  # fmt: skip
    return openvino.Core().compile_model(model, "CPU", options).create_infer_request()
