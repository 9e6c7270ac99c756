"""Programs of symbolic sizes: one compile serves every size, in the class that the size is in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.compiler.report import GraphReport
from tests.compiled import reported
from tests.tolerances import assert_close
from tests.unit.codegen.native import TARGETS

SIZES = (2, 3, 4, 5, 7, 8, 9, 10, 16, 33, 70)

TILE_ROWS = {2: 2, 3: 6, 4: 8}
"""How many rows a register tile of these products has, by the level of x86-64."""


def classes(reports: list[GraphReport]) -> list[tuple[str, ...]]:
    """The classes of each kernel that has any, without the size's name."""
    kernels = [kernel for report in reports for kernel in report.kernels if kernel.classes]
    return [tuple(one.partition(" ")[2] for one in kernel.classes) for kernel in kernels]


def check_all_sizes(
    function: Callable[..., Any], arguments: Callable[[int], tuple[Tensor, ...]], axis: int
) -> list[tuple[str, ...]]:
    """One dynamic program agrees with eager at every size; returns the classes of its kernels."""
    torch._dynamo.reset()
    backend, reports = reported()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for size in SIZES:
        given = arguments(size)
        torch._dynamo.mark_dynamic(given[0], axis)
        with torch.no_grad():
            exact = function(*(tensor.double() for tensor in given))
            assert_close(compiled(*given), function(*given), exact)
    assert len(reports) == 1
    return classes(reports)


@pytest.fixture(params=TARGETS)
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The rows of a register tile, on each level of x86-64 that this machine has."""
    if request.param not in TILE_ROWS:
        pytest.skip("the tiles are those of x86-64")
    monkeypatch.setenv("KERNELMILL_TARGET", f"x86-64-v{request.param}")
    return TILE_ROWS[request.param]


def test_a_product_of_two_arguments(rows: int) -> None:
    weight = torch.randn(600, 700)
    found = check_all_sizes(torch.matmul, lambda m: (torch.randn(m, 600), weight), 0)
    assert found == [(f"<= {rows}", f"> {rows}")]


def test_a_product_with_a_transposed_argument() -> None:
    weight = torch.randn(70, 300)
    found = check_all_sizes(nn.functional.linear, lambda m: (torch.randn(m, 300), weight), 0)
    assert found == [("<= 2", "<= 3", "<= 4", "> 4")]


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    keys = torch.randn(2, 1, 4, 50, 32)
    found = check_all_sizes(attend, lambda m: (torch.randn(1, 4, m, 32), *keys), 2)
    assert found == [("<= 2", "<= 8", "> 8")]


def test_layers_with_constant_weights_share_one_packing() -> None:
    model = nn.Linear(40, 100).eval()
    doubled = nn.Linear(40, 100).double()
    doubled.load_state_dict(model.state_dict())

    def layer(x: Tensor) -> Tensor:
        return doubled(x) if x.dtype == torch.float64 else model(x)

    assert check_all_sizes(layer, lambda m: (torch.randn(m, 40),), 0) == []


def test_explain_tells_the_classes(rows: int) -> None:
    x, weight = torch.randn(5, 600), torch.randn(600, 700)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.reset()
    text = str(kernelmill.explain(torch.matmul, x, weight))
    assert re.search(rf"shape classes: (\w+) <= {rows} \| \1 > {rows}", text)
