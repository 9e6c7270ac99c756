"""The models of the benchmark, at full size."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

import examples.demo
from tests import zoo
from tools.bench import low_precision
from tools.bench.subject import Subject

MEGABYTES = (4, 16, 64)
_COLUMNS = 1024


class Chain(nn.Module):
    """`x (rows, columns) -> the same`: steps that cost nothing but reading and writing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * 1.5 + 0.25) * 0.5 - x.abs()


class Softmax(nn.Module):
    """`x (rows, columns) -> the same`"""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


def _over_memory(name: str, model: nn.Module, megabytes: int) -> Subject:
    torch.manual_seed(zoo.SEED)
    x = torch.randn(megabytes * (1 << 18) // _COLUMNS, _COLUMNS)
    case = zoo.Case(f"{name}_{megabytes}", model.eval(), (x,), f"{megabytes} MB")
    return Subject(case, copies=True)


def _batched(case: zoo.Case, name: str, batch: int) -> zoo.Case:
    """The same model on random arguments of a larger batch."""
    args = tuple(arg.expand(batch, *arg.shape[1:]).clone() for arg in case.args)
    for arg in args:
        if arg.is_floating_point():
            arg.normal_()
    size = case.shape.partition(" ")[2]
    return zoo.Case(name, case.model, args, f"{batch} {size}")


def bert(batch: int) -> Subject:
    """BERT-base, `batch` x 128 tokens."""
    case = zoo.bert(small=False)
    return Subject(case if batch == 1 else _batched(case, f"bert_{batch}", batch))


def resnet50(batch: int) -> Subject:
    """ResNet-50 on `batch` images."""
    case = zoo.resnet50(small=False)
    return Subject(case if batch == 1 else _batched(case, f"resnet50_{batch}", batch))


def product_bf16(size: int = 1024) -> Subject:
    """A product of bfloat16 alone, without a bias."""
    torch.manual_seed(zoo.SEED)
    model, x = nn.Linear(size, size, bias=False).eval(), torch.randn(size, size)
    case = zoo.Case("product", model, (x,), f"{size} x {size} x {size}")
    return low_precision.halves(Subject(case))


def high(subject: Subject) -> Subject:
    """The same, whose products may be less exact than float32's."""
    case = subject.case
    changed = replace(case, name=f"{case.name}_high", shape=f'{case.shape}, "high"')
    return replace(subject, case=changed, precision="high")


def minilm_line() -> Subject:
    """MiniLM on real text of 32 tokens."""
    tokenizer, model = examples.demo.load()
    text = " ".join(examples.demo.SENTENCES)
    batch = tokenizer([text], truncation=True, max_length=32, return_tensors="pt")
    args = (batch["input_ids"], batch["attention_mask"])
    return Subject(zoo.Case("minilm", model, args, "1 x 32 tokens"))


def minilm_batch() -> Subject:
    """MiniLM on sixteen sentences."""
    case = zoo.minilm()
    return Subject(zoo.Case("minilm_16", case.model, case.args, case.shape))


def decoder24() -> Subject:
    """A decoder step of 24 layers, for what compiling it takes."""
    torch.manual_seed(zoo.SEED)
    model = zoo.DecoderStep(24, 512, 8, 2, 1792, 512).eval()
    args = (torch.randn(1, 1, 512), torch.tensor([256]))
    return Subject(zoo.Case("decoder24", model, args, "1 token, 24 layers"))


def _plain(name: str) -> Callable[[], Subject]:
    return lambda: Subject(zoo.BUILDERS[name](small=False))


def _over(name: str, model: Callable[[], nn.Module], size: int) -> Callable[[], Subject]:
    return lambda: _over_memory(name, model(), size)


BUILDERS: dict[str, Callable[[], Subject]] = {
    "mlp": lambda: Subject(zoo.mlp()),
    "decoder_step": _plain("decoder_step"),
    "decoder_step_int8": low_precision.int8_decoder,
    "smollm2": low_precision.smollm2,
    "bert": lambda: bert(1),
    "bert_8": lambda: bert(8),
    "decoder_step_bf16": lambda: low_precision.halves(_plain("decoder_step")()),
    "bert_high": lambda: high(bert(1)),
    "bert_8_high": lambda: high(bert(8)),
    "bert_bf16": lambda: low_precision.halves(bert(1)),
    "bert_8_bf16": lambda: low_precision.halves(bert(8)),
    "resnet50": lambda: resnet50(1),
    "resnet50_8": lambda: resnet50(8),
    "resnet50_bf16": lambda: low_precision.halves(resnet50(1)),
    "resnet50_8_bf16": lambda: low_precision.halves(resnet50(8)),
    "minilm": minilm_line,
    "quant_matmul": low_precision.quant_matmul,
    "product_bf16": product_bf16,
    **{f"chain_{size}": _over("chain", Chain, size) for size in MEGABYTES},
    **{f"softmax_{size}": _over("softmax", Softmax, size) for size in MEGABYTES},
    **{
        f"layer_norm_{size}": _over("layer_norm", lambda: nn.LayerNorm(_COLUMNS), size)
        for size in MEGABYTES
    },
    "minilm_16": minilm_batch,
    **{name: _plain(name) for name in ("gpt2", "vit", "whisper_encoder", "t5")},
    "decoder24": decoder24,
}
"""What builds each model, by name."""


def build(name: str) -> zoo.Case:
    """The case of that name. Raises KeyError for no such model."""
    return BUILDERS[name]().case


def own_copy(subject: Subject) -> Subject:
    """The same with weights of its own, for a contestant that changes them."""
    return subject.with_model(copy.deepcopy(subject.case.model))
