"""A decoder with a static KV cache, written in place by compiled code, token after token."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from tests import zoo
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")
TOKENS = 32


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_greedy_tokens_are_those_of_eager(attention: str, backend: str) -> None:
    model = zoo.llama(small=True, attention=attention)
    prompt = torch.randint(0, model.config.vocab_size, (1, 6))
    expected = zoo.generate(model, zoo.decode_step(model), prompt, TOKENS)
    assert len(set(expected[0].tolist())) > TOKENS // 4, "a constant sequence would prove nothing"
    step = torch.compile(zoo.decode_step(model), backend=backend, fullgraph=True)
    counters.clear()
    assert torch.equal(zoo.generate(model, step, prompt, TOKENS), expected)
    assert counters["stats"]["unique_graphs"] == 1


def test_caches_are_written_in_place(backend: str) -> None:
    case = zoo.decoder_step(small=True)
    reference = copy.deepcopy(case.model)
    compiled = torch.compile(case.model, backend=backend, fullgraph=True)
    pointers = [buffer.data_ptr() for buffer in case.model.buffers()]
    hidden = case.args[0]
    for position in range(5):
        where = torch.tensor([position])
        with torch.no_grad():
            assert_close(compiled(hidden, where), reference(hidden, where))
        hidden = hidden * 0.9 + 0.1
    assert_close(list(case.model.buffers()), list(reference.buffers()))
    assert [buffer.data_ptr() for buffer in case.model.buffers()] == pointers
