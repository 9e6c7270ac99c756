"""Real model architectures, small: the compiled forward equals eager's."""

from __future__ import annotations

import copy

import pytest
import torch

from tests import zoo
from tests.tolerances import assert_close, assert_near

pytestmark = pytest.mark.usefixtures("strict")
VARIANTS = [(name, {}) for name in zoo.BUILDERS] + [
    (name, {"attention": "eager"}) for name in zoo.WITH_ATTENTION
]


@pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{n}-{o.get('attention', 'sdpa')}" for n, o in VARIANTS]
)
def test_forward_equals_eager(name: str, options: dict[str, str], backend: str) -> None:
    case = zoo.BUILDERS[name](small=True, **options)
    expected = copy.deepcopy(case).run()
    compiled = torch.compile(case.model, backend=backend, fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(*case.args), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["bert", "decoder_step"])
def test_forward_in_other_dtypes(name: str, dtype: torch.dtype, backend: str) -> None:
    case = zoo.BUILDERS[name](small=True)
    args = tuple(arg.to(dtype) if arg.is_floating_point() else arg for arg in case.args)
    exact_args = tuple(arg.double() if arg.is_floating_point() else arg for arg in args)
    model = case.model.to(dtype)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*exact_args)
        expected = copy.deepcopy(model)(*args)
        actual = torch.compile(model, backend=backend, fullgraph=True)(*args)
    assert_close(actual, expected, exact)


def test_mlp_with_its_full_sizes(backend: str) -> None:
    case = zoo.mlp()
    expected = case.run()
    with torch.no_grad():
        assert_close(torch.compile(case.model, backend=backend)(*case.args), expected)


def test_minilm_with_real_weights(backend: str) -> None:
    case = zoo.minilm()
    expected = case.run().last_hidden_state
    with torch.no_grad():
        actual = torch.compile(case.model, backend=backend)(*case.args).last_hidden_state
    assert_near(actual, expected)
    cosine = torch.nn.functional.cosine_similarity(actual.mean(1), expected.mean(1))
    assert cosine.min() > 0.999999
