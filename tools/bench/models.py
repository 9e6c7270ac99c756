"""The rows of the page of models: how each is made at full size, and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

import examples.demo
from tests import zoo
from tools.bench import low_precision
from tools.bench.subject import Subject

Build = Callable[[], Subject]
_COLUMNS = 1024


class Chain(nn.Module):
    """`x (rows, columns) -> the same`: steps that cost nothing but reading and writing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * 1.5 + 0.25) * 0.5 - x.abs()


def _over_memory(name: str, model: Callable[[], nn.Module], megabytes: int) -> Subject:
    torch.manual_seed(zoo.SEED)
    x = torch.randn(megabytes * (1 << 18) // _COLUMNS, _COLUMNS)
    case = zoo.Case(f"{name}_{megabytes}", model().eval(), (x,), f"{megabytes} MB")
    return Subject(case, copies=True)


def _batch_of_8(name: str) -> Subject:
    """A model of the zoo on random arguments of a larger batch."""
    case = zoo.BUILDERS[name](small=False)
    args = tuple(arg.expand(8, *arg.shape[1:]).clone() for arg in case.args)
    for arg in args:
        if arg.is_floating_point():
            arg.normal_()
    size = case.shape.partition(" ")[2]
    return Subject(zoo.Case(f"{name}_8", case.model, args, f"8 {size}"))


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


def decoder24() -> Subject:
    """A decoder step of 24 layers, for what compiling it takes."""
    torch.manual_seed(zoo.SEED)
    model = zoo.DecoderStep(24, 512, 8, 2, 1792, 512).eval()
    args = (torch.randn(1, 1, 512), torch.tensor([256]))
    return Subject(zoo.Case("decoder24", model, args, "1 token, 24 layers"))


def _plain(name: str) -> Build:
    return lambda: Subject(zoo.BUILDERS[name](small=False))


@dataclass(frozen=True)
class Row:
    """A model whose steady calls are measured.

    build    makes it
    times    how many times faster than the best contestant is to be reached; 0: nothing is
    share    the part of the limit to be reached; 0: none
    floor    also measure what any call through torch.compile costs
    tiles    what is to be reached on processors with a tile unit, `times` and `share`, where the
             row is one of those that the unit is for; others have the same goals everywhere
    """

    name: str
    title: str
    build: Build
    times: float = 0.0
    share: float = 0.0
    floor: bool = False
    tiles: tuple[float, float] | None = None

    def goal(self, tiles: bool) -> tuple[float, float]:
        """Return `times` and `share`, on a processor that has a tile unit or one that has not."""
        return self.tiles if tiles and self.tiles else (self.times, self.share)


def _changed(change: Callable[[Subject], Subject]) -> Callable[[Build], Build]:
    return lambda build: lambda: change(build())


_halves, _high = _changed(low_precision.halves), _changed(high)
_bert, _bert_8 = _plain("bert"), partial(_batch_of_8, "bert")
_resnet, _resnet_8 = _plain("resnet50"), partial(_batch_of_8, "resnet50")
_decoder = _plain("decoder_step")
STEADY = (
    Row("mlp", "MLP 8 x 64, batch 4", lambda: Subject(zoo.mlp()), 4.0, floor=True),
    Row("decoder_step", "decoder step, 8 layers, d=512, KV 512", _decoder, 1.6, 0.85, floor=True),
    Row("decoder_step_int8", "the same, int8 weights", low_precision.int8_decoder, 1.5, 0.75),
    Row("smollm2", "SmolLM2-135M-shaped decoder step, bfloat16", low_precision.smollm2, 1.4, 0.80),
    Row("decoder_step_bf16", "decoder step, 8 layers, bfloat16", _halves(_decoder),
        tiles=(0.0, 0.0)),
    Row("bert", "BERT-base 1 x 128", _bert, 1.1, 0.88, tiles=(1.8, 0.0)),
    Row("bert_8", "BERT-base 8 x 128", _bert_8, 1.1, 0.88, tiles=(1.8, 0.0)),
    Row("bert_high", 'BERT-base 1 x 128, precision "high"', _high(_bert), tiles=(2.5, 0.0)),
    Row("bert_8_high", 'BERT-base 8 x 128, precision "high"', _high(_bert_8), tiles=(2.5, 0.0)),
    Row("bert_bf16", "BERT-base 1 x 128, bfloat16", _halves(_bert), 1.1, tiles=(1.5, 0.0)),
    Row("bert_8_bf16", "BERT-base 8 x 128, bfloat16", _halves(_bert_8), 1.1, tiles=(1.5, 0.0)),
    Row("resnet50", "ResNet-50, batch 1", _resnet, 1.0, 0.85),
    Row("resnet50_8", "ResNet-50, batch 8", _resnet_8, 1.0, 0.85),
    Row("resnet50_bf16", "ResNet-50, batch 1, bfloat16", _halves(_resnet), tiles=(1.2, 0.0)),
    Row("resnet50_8_bf16", "ResNet-50, batch 8, bfloat16", _halves(_resnet_8), tiles=(1.2, 0.0)),
    Row("minilm", "MiniLM-L6, real sentences, 1 x 32", minilm_line, 1.5, floor=True),
    Row("quant_matmul", "int8 quant_matmul 864 x 7168 x 4096", low_precision.quant_matmul, 1.2,
        0.80, tiles=(1.3, 0.0)),
    Row("product_bf16", "bfloat16 product 1024 x 1024 x 1024", product_bf16, tiles=(0.0, 0.80)),
    *(
        Row(f"{name}_{size}", f"{title}, {size} MB",
            partial(_over_memory, name, model, size), 1.0, 0.90)
        for name, title, model in (
            ("chain", "elementwise chain", Chain),
            ("softmax", "softmax", partial(nn.Softmax, -1)),
            ("layer_norm", "layer norm", partial(nn.LayerNorm, _COLUMNS)),
        )
        for size in (4, 16, 64)
    ),
    Row("minilm_16", "MiniLM-L6, 16 sentences", lambda: Subject(zoo.minilm()), tiles=(1.8, 0.0)),
    Row("gpt2", "GPT-2 (124M)", _plain("gpt2")),
    Row("vit", "ViT-base/16", _plain("vit")),
    Row("whisper_encoder", "Whisper-base encoder", _plain("whisper_encoder")),
    Row("t5", "T5-small", _plain("t5")),
)  # fmt: skip
"""The rows, in the order of the tables."""

FIRST = ("bert", "resnet50", "decoder24", "mlp", "minilm")
"""The models whose first call is measured; the first three have goals."""

ROWS = {row.name: row for row in (*STEADY, Row("decoder24", "decoder step, 24 layers", decoder24))}
"""By name, with the one of which only the first call is measured."""

TILES = tuple(row.name for row in STEADY if row.tiles)
"""Rows that a tile unit is for."""
