"""tools/bench/tokens: what it counts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from tools.bench import harness, tokens
from tools.bench.other_decoders import LARGE, SMOL, llama

tiny = partial(llama, 1, 64, 2, 1, 96, 128)


def made(shape: Any, weights: str, folder: Path) -> tokens.CachedDecoder:
    return tokens.make_model(shape, weights, str(folder))


def test_shapes_are_those_of_their_names() -> None:
    assert SMOL.head_dim == LARGE.head_dim == 64
    with torch.device("meta"):
        found = [tokens.CachedDecoder(shape).num_parameters() for shape in (SMOL, LARGE)]
    assert [round(count / 1e6) for count in found] == [135, 1100]


def test_a_token_reads_all_but_the_embedding(tmp_path: Path) -> None:
    embedding = 128 * 64 * 2
    for tied in (True, False):
        model = made(tiny(tied), "bf16", tmp_path)
        whole = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
        assert tokens.bytes_of_weights(model) == whole - (0 if tied else embedding)


def test_quantised_layers_have_fewer_bytes(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    whole, eight, four = (
        tokens.bytes_of_weights(made(tiny(False), weights, tmp_path))
        for weights in ("bf16", "int8", "int4")
    )
    assert whole * 0.5 < eight < whole * 0.6 and whole * 0.25 < four < whole * 0.4


def test_rates_are_those_of_tokens_after_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def generate(count: int) -> int:
        nonlocal now
        now += 3.0 + count * 0.5  # the prompt, then each token
        return 0

    monkeypatch.setattr(harness.time, "perf_counter", lambda: now)
    assert tokens.measured({"one": generate}, 11, 2) == {"one": 2.0}
