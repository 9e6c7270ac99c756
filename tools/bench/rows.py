"""The rows of the benchmark: what is measured, and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass

from tools.bench.models import MEGABYTES


@dataclass(frozen=True)
class Row:
    """A model whose steady calls are measured.

    times    how many times faster than the best contestant is to be reached; 0: nothing is
    share    the part of the limit to be reached; 0: none
    floor    also measure what any call through torch.compile costs
    tiles    what is to be reached on processors with a tile unit, `times` and `share`, where the
             row is one of those that the unit is for; others have the same goals everywhere
    """

    name: str
    title: str
    times: float = 0.0
    share: float = 0.0
    floor: bool = False
    tiles: tuple[float, float] | None = None

    def goal(self, tiles: bool) -> tuple[float, float]:
        """`times` and `share`, on a processor that has a tile unit or one that has not."""
        return self.tiles if tiles and self.tiles else (self.times, self.share)


STEADY = (
    Row("mlp", "MLP 8 x 64, batch 4", 4.0, floor=True),
    Row("decoder_step", "decoder step, 8 layers, d=512, KV 512", 1.6, 0.85, floor=True),
    Row("decoder_step_int8", "the same, int8 weights", 1.5, 0.75),
    Row("smollm2", "SmolLM2-135M-shaped decoder step, bfloat16", 1.4, 0.80),
    Row("decoder_step_bf16", "decoder step, 8 layers, bfloat16", tiles=(0.0, 0.0)),
    Row("bert", "BERT-base 1 x 128", 1.1, 0.88, tiles=(1.8, 0.0)),
    Row("bert_8", "BERT-base 8 x 128", 1.1, 0.88, tiles=(1.8, 0.0)),
    Row("bert_high", 'BERT-base 1 x 128, precision "high"', tiles=(2.5, 0.0)),
    Row("bert_8_high", 'BERT-base 8 x 128, precision "high"', tiles=(2.5, 0.0)),
    Row("bert_bf16", "BERT-base 1 x 128, bfloat16", 1.1, tiles=(1.5, 0.0)),
    Row("bert_8_bf16", "BERT-base 8 x 128, bfloat16", 1.1, tiles=(1.5, 0.0)),
    Row("resnet50", "ResNet-50, batch 1", 1.0, 0.85),
    Row("resnet50_8", "ResNet-50, batch 8", 1.0, 0.85),
    Row("resnet50_bf16", "ResNet-50, batch 1, bfloat16", tiles=(1.2, 0.0)),
    Row("resnet50_8_bf16", "ResNet-50, batch 8, bfloat16", tiles=(1.2, 0.0)),
    Row("minilm", "MiniLM-L6, real sentences, 1 x 32", 1.5, floor=True),
    Row("quant_matmul", "int8 quant_matmul 864 x 7168 x 4096", 1.2, 0.80, tiles=(1.3, 0.0)),
    Row("product_bf16", "bfloat16 product 1024 x 1024 x 1024", tiles=(0.0, 0.80)),
    *(
        Row(f"{name}_{size}", f"{title}, {size} MB", 1.0, 0.90)
        for name, title in (
            ("chain", "elementwise chain"),
            ("softmax", "softmax"),
            ("layer_norm", "layer norm"),
        )
        for size in MEGABYTES
    ),
    Row("minilm_16", "MiniLM-L6, 16 sentences", tiles=(1.8, 0.0)),
    Row("gpt2", "GPT-2 (124M)"),
    Row("vit", "ViT-base/16"),
    Row("whisper_encoder", "Whisper-base encoder"),
    Row("t5", "T5-small"),
)

FIRST_SECONDS = 0.7
"""Longest first call, less capture, that is to be reached with an empty store."""

FIRST_TIMES = 10.0
"""How many times quicker than Inductor's that is to be."""

FIRST = ("bert", "resnet50", "decoder24", "mlp", "minilm", "decoder_step")
"""The models whose first call is measured; the first three have goals."""

TITLES = {row.name: row.title for row in STEADY} | {"decoder24": "decoder step, 24 layers"}

NAMES = (*(row.name for row in STEADY), *(f"first-{name}" for name in FIRST), "fixed")
"""What `--rows` takes, and the groups' names."""

GROUPS = {"tiles": tuple(row.name for row in STEADY if row.tiles)}
"""Rows by the name of their group. Those of `tiles` are what a tile unit is for."""
