"""The models: the lists of PyTorch's dashboard of Inductor, our own rows, and captured graphs.

Names, batch sizes and numbers of tokens are those of `benchmarks/dynamo` in PyTorch's repository:
the batch sizes of the lists for CPUs, and for a model that these lack those of the other list. All
weights are random: nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests import zoo
from tools import graphnet
from tools.bench.harness import slug
from tools.bench.models import STEADY
from tools.bench.subject import Subject
from tools.libraries.row import library
from tools.machine import available_memory

NEEDED = {
    "huggingface": "transformers", "timm": "timm", "torchbench": "torchvision",
    "ONNX Runtime": "onnxruntime", "OpenVINO": "openvino",
}  # fmt: skip
"""The package that a list or a contestant needs."""

_COPIES = 10
"""So many times its weights a row takes: each contestant has a copy, and may pack another."""

_DATA: Mapping[str, Any] = json.loads(Path(__file__).with_name("lists.json").read_text())
"""By list and name batch sizes, with tokens for transformers. "classes": of transformers, and what
of their configs is not the default, for names that are not those of classes."""


class UnavailableModel(Exception):
    """A model that cannot be had here; the text says why."""


@dataclass(frozen=True)
class Row:
    """A model of a list: `build` makes it for a batch size, `batch` is the list's."""

    list: str
    name: str
    batch: int
    build: Callable[[int], Subject]

    @property
    def key(self) -> str:
        """List and name, by which its figures are kept."""
        return f"{self.list}/{self.name}"


def all_rows(graphs: str = "") -> list[Row]:
    """Return the rows of all lists whose package is installed, and those of a folder of GraphNet's
    graphs. Lists take turns, so that a part of the rows has something of each."""
    samples = sorted(Path(graphs).rglob("weight_meta.py")) if graphs else []
    lists = [
        [Row("huggingface", name, batch, partial(_hugging_face, name, tokens))
         for name, (batch, tokens) in _DATA["huggingface"].items()],
        *([Row(of, name, batch, partial(_images, of, name)) for name, batch in _DATA[of].items()]
          for of in ("timm", "torchbench")),
        [Row("own", row.name, 1, lambda _, build=row.build: build())
         for row in STEADY if not any(part in row.name for part in _NOT_FLOATS)],
        [Row("graphnet", str(file.parent.relative_to(graphs)), 1, partial(_graph, file.parent))
         for file in samples],
    ]  # fmt: skip
    places = {row: (number + 0.5) / len(rows) for rows in lists for number, row in enumerate(rows)}
    return sorted((row for row in places if installed(row.list)), key=places.__getitem__)


_NOT_FLOATS = ("bf16", "int8", "quant", "smollm2", "_high")
"""In the names of those of our rows that are not in float32 as it is."""


def installed(need: str) -> bool:
    """Whether this list or contestant has what it needs."""
    return find_spec(NEEDED.get(need, "torch")) is not None


def lacking() -> list[str]:
    """Return a sentence for each list or contestant that is left out."""
    return [
        f"{package} is not installed: {need} is left out. `make scoreboard` makes an environment "
        "that has it, by the extras `libraries` and `bench`"
        for need, package in NEEDED.items()
        if not installed(need)
    ]


# ---- models -------------------------------------------------------------------------------------


def _hugging_face(name: str, tokens: int, batch: int) -> Subject:
    hf = library("transformers")
    kind, options = _DATA["classes"].get(name, (name, {}))
    if not hasattr(hf, kind):
        raise UnavailableModel(f"not in this version of transformers: {kind}")
    config = getattr(hf, kind).config_class(**options)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    with torch.device("meta"):
        weights = sum(p.numel() * 4 for p in getattr(hf, kind)(config).parameters())
    if weights * _COPIES > available_memory():
        raise UnavailableModel(
            f"its row takes some {weights * _COPIES >> 30} GiB: the contestants together "
            f"{_COPIES} times its weights; {available_memory() >> 30} are free"
        )
    torch.manual_seed(zoo.SEED)
    model = getattr(hf, kind)(config).eval()
    args = [torch.randint(config.vocab_size, (batch, tokens))]
    if kind.endswith("ForConditionalGeneration"):
        model, args = zoo.EncoderDecoder(model), args * 2
    if kind.startswith("Whisper"):
        args[0] = torch.randn(batch, config.num_mel_bins, 3000)
    args = tuple(each.clone() for each in args)
    return _subject("huggingface", name, model, args, f"{batch} x {tokens} tokens")


def _images(of: str, name: str, batch: int) -> Subject:
    source: Any = library("timm") if of == "timm" else library("torchvision").models
    make, known = (
        (source.create_model, source.is_model(name))
        if of == "timm"
        else (source.get_model, name in source.list_models())
    )
    if not known:
        raise UnavailableModel(f"not in this version of {NEEDED[of]}: {name}")
    torch.manual_seed(zoo.SEED)
    model = zoo.with_statistics(make(name).eval())
    size = model.default_cfg["input_size"] if of == "timm" else (3, 224, 224)
    shape = (batch, *size)
    return _subject(of, name, model, (torch.randn(shape),), " x ".join(map(str, shape)))


def _graph(folder: Path, _: int) -> Subject:
    torch.manual_seed(zoo.SEED)
    model, args = graphnet.sample(folder)
    return _subject("graphnet", folder.name, model, args, f"{len(args)} arguments")


def _subject(of: str, name: str, model: nn.Module, args: tuple[Tensor, ...], shape: str) -> Subject:
    return Subject(zoo.Case(slug(f"{of} {name}"), model, args, shape))
