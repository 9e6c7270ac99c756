"""config.mode = "reduce-overhead" on models, against eager and against max-autotune."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from tests import zoo
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")


def backend(mode: str = "reduce-overhead") -> Any:
    config = kernelmill.CompilerConfig()
    config.mode = mode
    return kernelmill.get_backend(compiler_config=config)


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet50", "decoder_step"])
def test_a_model_computes_the_same(name: str) -> None:
    case = getattr(zoo, name)()
    expected = torch.utils._pytree.tree_leaves(case.run())
    for mode in ("reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        with torch.no_grad():
            actual = torch.compile(case.model, backend=backend(mode), dynamic=False)(*case.args)
        for mine, theirs in zip(torch.utils._pytree.tree_leaves(actual), expected, strict=True):
            if isinstance(theirs, Tensor):
                assert_close(mine, theirs)


def test_one_dynamic_program_serves_every_size() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Softmax(-1)).eval()
    used = backend()
    compiled = torch.compile(model, backend=used, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 64, 3, 129):
            x = torch.randn(rows, 16)
            assert_close(compiled(x), model(x))
    assert len(used.captures) == 1


def test_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    compiled = torch.compile(model, backend=backend())
    x = torch.randn(5, 8)
    compiled(x).square().sum().backward()
    ours = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad()
    model(x).square().sum().backward()
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert_close(mine, parameter.grad)


def test_explain_tells_dynamic_kernels() -> None:
    config = kernelmill.CompilerConfig()
    config.mode = "reduce-overhead"
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval()
    with torch.no_grad():
        explanation = kernelmill.explain(model, torch.randn(3, 8), compiler_config=config)
    kinds = {kernel["kind"] for kernel in explanation.as_dict()["kernels"]}
    assert kinds == {"dynamic"}
    assert "[dynamic, " in str(explanation)
