"""examples/generate: Hugging Face's generate() over a compiled forward makes eager's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import kernelmill
from tests.kept_methods import COMPILED

pytest.importorskip("transformers")

from examples import generate as example

TOKENS = 12


@COMPILED
@pytest.mark.usefixtures("strict")
def test_greedy_and_sampled_tokens_are_those_of_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", str(tmp_path))
    model = example.make_model(hidden=128, layers=2, vocabulary=211)
    prompts = example.make_prompts(211, batch=2)
    cache = example.make_cache(model, 2, TOKENS)
    eager = model.forward
    compiled: Any = example.compiled(model)
    different: list[torch.Tensor] = []
    for way in example.WAYS:
        for prompt in prompts:
            model.forward = eager
            expected = example.generate(model, prompt, cache, way, TOKENS)
            model.forward = compiled
            found = example.generate(model, prompt, cache, way, TOKENS)
            assert torch.equal(found, expected)
            assert found.shape == (2, prompt.shape[1] + TOKENS)
            assert torch.equal(found[:, : prompt.shape[1]], prompt)
            different.append(found[:, prompt.shape[1] :])
    new = torch.stack(different)
    assert len(new[0].unique()) > TOKENS // 2, "a constant sequence would prove nothing"
    assert not torch.equal(new[0], new[2]), "sampled tokens are not the greedy ones"
    # A step for one token, and prompts: of the first length, then of any.
    report = compiled.report()
    assert len(report.programs) == report.statistics["traced"] == 3 and report.torch == {}


def test_rates_come_with_whether_tokens_are_equal() -> None:
    model = example.make_model(hidden=64, layers=1, vocabulary=97)
    eager = model.forward

    def wrong(*args: object, **kwargs: object) -> object:
        found = eager(*args, **kwargs)
        found.logits = -found.logits
        return found

    prompts = example.make_prompts(97, batch=1)
    for other, equal in ((eager, True), (wrong, False)):
        forwards = {"eager": eager, "compiled": other}
        found, same = example.rates(model, forwards, example.WAYS[0], 4, 1, prompts)
        assert same is equal and found["eager"] > 0 and found["compiled"] > 0


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("named", [True, False])
def test_steps_that_transformers_compiles_are_traced_once(named: bool) -> None:
    """`generate` copies its config, and compares the copy with that of the call before."""
    transformers: Any = pytest.importorskip("transformers")
    made = kernelmill.get_backend()
    config = transformers.CompileConfig(backend="kernelmill" if named else made)
    config._compile_all_devices = True
    model = example.make_model(hidden=64, layers=1, vocabulary=97)
    model.generation_config.compile_config = config
    prompt = example.make_prompts(97, batch=1)[0]
    counters.clear()
    found: list[Any] = []
    for way in ({"disable_compile": True}, {}, {}, {"compile_config": config}):
        found.append(
            model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False,
                cache_implementation="static", **way,
            )
        )  # fmt: skip
    assert all(torch.equal(each, found[0]) for each in found)
    assert counters["stats"]["unique_graphs"] == 1
    assert len(made.captures) == (not named)
