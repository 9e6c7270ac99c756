"""config.mode = "reduce-overhead" on models, against eager and against max-autotune."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.core.errors import InputError
from tests import zoo
from tests.e2e.data_dependent import arguments, masked, nonzero, sized_by_item
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


@pytest.mark.parametrize("function", [nonzero, masked, sized_by_item])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
def test_sizes_that_depend_on_values_stay_open_in_a_capture(function: Any) -> None:
    """Arguments of one set of sizes, that is of one capture, give results of different sizes."""
    used = backend()
    compiled = torch.compile(function, backend=used, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for x in [*arguments(), *arguments(9), *arguments()]:
            torch.testing.assert_close(compiled(x), function(x))
    assert len(used.captures) == 1


def windows(x: Tensor, like: Tensor) -> Tensor:
    width = like.shape[0]
    y = x.view(x.shape[0], x.shape[1] // width, width).flip(2)
    return y.reshape(x.shape[0], x.shape[1] // width * width) * x


def replaced_rows(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return x.index_put((rows,), values) + 1


def test_sizes_that_are_known_to_be_equal() -> None:
    compiled = torch.compile(windows, backend=backend(), dynamic=True)
    with torch.no_grad():
        for rows, columns, width in [(2, 16, 4), (3, 36, 6), (2, 16, 8), (2, 16, 4)]:
            args = torch.randn(rows, columns), torch.randn(width)
            torch.testing.assert_close(compiled(*args), windows(*args))


def test_a_captured_set_of_sizes_does_not_serve_sizes_that_differ() -> None:
    compiled = torch.compile(replaced_rows, backend=backend(), dynamic=True)
    right = torch.randn(9, 5), torch.arange(4), torch.randn(4, 5)
    for _ in range(2):
        torch.testing.assert_close(compiled(*right), replaced_rows(*right))
    for rows in (4, 6):
        with pytest.raises(InputError, match="needs them equal"):
            compiled(torch.randn(9, 5), torch.arange(rows), torch.randn(3, 5))
    torch.testing.assert_close(compiled(*right), replaced_rows(*right))


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
