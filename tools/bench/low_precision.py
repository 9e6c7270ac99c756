"""Models of the benchmark that compute with less than float32."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

import kernelmill.ops
from tests import zoo
from tools.bench.limits import BYTES, HALVES
from tools.bench.subject import Subject


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 with a float32 scale for each output.

    With `scale_first` the weight is scaled before the product, as the exporters' patterns want it.
    """

    def __init__(self, linear: nn.Linear, scale_first: bool = False) -> None:
        super().__init__()
        self.scale_first = scale_first
        self.bias = linear.bias
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", torch.round(weight / scale).to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype)
        if self.scale_first:
            return nn.functional.linear(x, weight * self.scale, self.bias)
        result = nn.functional.linear(x, weight) * self.scale[:, 0]
        return result if self.bias is None else result + self.bias


def _with_int8_weights(model: nn.Module, scale_first: bool) -> nn.Module:
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child, scale_first))
    return model


def int8_decoder() -> Subject:
    """The decoder step with int8 weights and float32 arithmetic."""
    case = zoo.decoder_step(small=False)
    first, last = (_with_int8_weights(case.model, early) for early in (True, False))
    shape = f"{case.shape}, int8 weights"
    return Subject(replace(case, name="decoder_step_int8", model=last, shape=shape), twin=first)


class TokenStep(nn.Module):
    """`(token (1, 1) int64, position (1,) int64) -> logits`; embedding and head share a weight."""

    def __init__(self, vocabulary: int, decoder: zoo.DecoderStep, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.decoder = decoder
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        return self.head(self.decoder(self.embedding(token), position))


def smollm2() -> Subject:
    """A decoder step of the shape of SmolLM2-135M with a cache of 512, in bfloat16."""
    torch.manual_seed(zoo.SEED)
    decoder = zoo.DecoderStep(30, 576, 9, 3, 1536, 512)
    model = TokenStep(49152, decoder, 576).eval()
    args = (torch.randint(0, 49152, (1, 1)), torch.tensor([256]))
    case = zoo.Case("smollm2", model.bfloat16(), args, "1 token, cache 512, bfloat16")
    return Subject(case, kind=HALVES, twin=copy.deepcopy(model).float(), wrong=0.1)


def halves(subject: Subject) -> Subject:
    """The model with bfloat16 weights and arguments; exporters see it in float32, and are told to
    compute in bfloat16."""
    case = subject.case
    model = copy.deepcopy(case.model).bfloat16()
    args = tuple(a.bfloat16() if a.is_floating_point() else a for a in case.args)
    changed = zoo.Case(f"{case.name}_bf16", model, args, f"{case.shape}, bfloat16")
    twin = copy.deepcopy(model).float()
    return replace(subject, case=changed, kind=HALVES, twin=twin, wrong=0.2)


class QuantMatmul(nn.Module):
    """`x (m, k) int8 -> (m, n) bfloat16`: a product of bytes, scaled by column."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.scale.dtype == torch.float64:
            return (x.double() @ self.weight.double()) * self.scale
        return kernelmill.ops.quant_matmul(x, self.weight, self.scale, output_dtype=torch.bfloat16)


def quant_matmul(m: int = 864, k: int = 7168, n: int = 4096) -> Subject:
    """The product of bytes of that size. `onnx` is the same in ONNX's terms, float32 out."""
    torch.manual_seed(zoo.SEED)
    x = torch.randint(-127, 128, (m, k), dtype=torch.int8)
    weight = torch.randint(-127, 128, (k, n), dtype=torch.int8)
    scale = torch.rand(n) * 1e-3 + 1e-4
    case = zoo.Case("quant_matmul", QuantMatmul(weight, scale).eval(), (x,), f"{m} x {k} x {n}")
    return Subject(
        case, kind=BYTES, onnx=lambda: _onnx_product(m, k, weight, scale), flops=2 * m * k * n
    )


def _onnx_product(m: int, k: int, weight: Tensor, scale: Tensor) -> bytes:
    """Both sides dequantised, which runtimes know as a product of bytes."""
    import onnx

    n = weight.shape[1]
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17]>
        quant_matmul (int8[{m}, {k}] x) => (float[{m}, {n}] y) {{
            x_float = DequantizeLinear (x, x_scale, x_zero)
            w_float = DequantizeLinear <axis = 1> (w, w_scale, w_zero)
            y = MatMul (x_float, w_float)
        }}"""
    )
    constants = {
        "w": weight, "w_scale": scale, "w_zero": torch.zeros(n, dtype=torch.int8),
        "x_scale": torch.tensor(1.0), "x_zero": torch.tensor(0, dtype=torch.int8),
    }  # fmt: skip
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), name))
    onnx.checker.check_model(model)
    return model.SerializeToString()
