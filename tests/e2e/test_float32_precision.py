"""`torch.set_float32_matmul_precision` with compiled products: on tiles, which are emulated here,
each call computes as exactly as the setting says then; elsewhere it changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill import aot, explain, scope
from kernelmill.backend import get_backend
from kernelmill.config import CompilerConfig
from kernelmill.core.target.isa import NAMED, why_not_here
from kernelmill.inference import cache_compile, set_dim_gears
from tests.torch_settings import forget_precisions, settable

TILES, NO_TILES = "x86-64-v4-amx-emulated", "x86-64-v2"
K = 256

pytestmark = pytest.mark.skipif(bool(why_not_here(NAMED[TILES])), reason="no AVX512-BF16")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(K, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Fused(Model):
    def forward(self, x: Tensor) -> Tensor:
        with scope.super_kernel("both"):
            return self.linear(torch.relu(x)) + 1


def config(target: str = TILES, **options: Any) -> CompilerConfig:
    found = CompilerConfig()
    found.target = target
    for name, value in options.items():
        setattr(found, name, value)
    return found


def exactness(found: Tensor, exact: Tensor) -> str:
    """Of a result, by its error: "highest", "high" or "medium"."""
    error = ((found.double() - exact).norm() / exact.norm()).item()
    assert error < 1e-2
    return "highest" if error < 1e-6 else "high" if error < 1e-4 else "medium"


def exact_product(model: Model, x: Tensor) -> Tensor:
    weight, bias = model.linear.weight.detach(), model.linear.bias.detach()
    return nn.functional.linear(x.double(), weight.double(), bias.double())


@contextmanager
def precision(name: str) -> Generator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


ORDER = ("highest", "high", "medium", "high", "highest", "medium", "highest")


def check_calls(model: Model, call: Callable[[Tensor], Tensor], *sizes: int) -> None:
    """Calls under changing settings are as exact as these say, each of them twice."""
    with torch.no_grad():
        for name in ORDER:
            for rows in sizes or (64,):
                x = torch.randn(rows, K)
                with precision(name):
                    found = [call(x), call(x)]
                assert torch.equal(*found)
                assert exactness(found[0], exact_product(model, x)) == name


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_each_call_is_as_exact_as_the_setting_says(mode: str) -> None:
    model = Model()
    check_calls(model, torch.compile(model, backend=get_backend(compiler_config=config(mode=mode))))


def test_each_call_of_any_size_is(tmp_path: Path) -> None:
    model = Model()
    call = torch.compile(model, backend=get_backend(compiler_config=config()), dynamic=True)
    check_calls(model, call, 64, 80)


def test_each_call_with_gears_is() -> None:
    model = Model()
    call = torch.compile(model, backend=get_backend(compiler_config=config()))

    def geared(x: Tensor) -> Tensor:
        set_dim_gears(x, {0: [64, 80]})
        return call(x)

    check_calls(model, geared, 64, 80)


def test_each_call_of_a_super_kernel_is() -> None:
    model = Fused()
    call = torch.compile(model, backend=get_backend(compiler_config=config()))
    with torch.no_grad():
        for name in ORDER:
            x = torch.randn(64, K)
            with precision(name):
                found = call(x)
            assert exactness(found, exact_product(model, x.relu()) + 1) == name


def test_each_call_of_a_cached_method_is(tmp_path: Path) -> None:
    class Cached(Model):
        def __init__(self) -> None:
            super().__init__()
            self.run = cache_compile(self.compute, config=config(), cache_dir=str(tmp_path))

        def compute(self, x: Tensor) -> Tensor:
            return self.linear(x)

    model = Cached()
    check_calls(model, model.run)
    assert model.run.statistics["traced"] == 3
    again = Cached()
    check_calls(again, again.run)
    assert again.run.statistics["loaded"] == 3


class Several(nn.Module):
    """Products for which pieces pay, of a k that is too small, and too few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.row = nn.Linear(K, K), nn.Linear(16, K), nn.Linear(K, K)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.narrow(torch.relu(self.wide(x))[:, :16])
        return x, self.row(x[:1])


def explained(**options: Any) -> tuple[dict[str, int], str, str]:
    """How `Several` multiplies: data, and the lines about it in text and page."""
    made = config(**options)
    with torch.no_grad():
        found = explain(Several(), torch.randn(512, K), compiler_config=made, measure=False)
    (products,) = found.as_dict()["f32_products"]
    texts = (str(found), found.html())
    return products, *("\n".join(re.findall(r"[Pp]roducts of float32: (.*)", t)) for t in texts)


def test_explain_counts_products_and_says_why_one_is_by_fma() -> None:
    products, text, page = explained()
    assert products == {
        "6 products of bfloat16 for each": 1,
        "FMA: more exact where k is below 32": 1,
        "FMA: faster at these sizes": 1,
    }
    assert text.splitlines() == [f"1 launch by {how}" for how in products]
    assert [f"1 launch by {how}</p>" for how in products] == page.splitlines()
    with precision("medium"):
        assert "1 product of bfloat16 for each" in explained()[0]


def test_explain_says_what_the_option_did() -> None:
    products, text, _ = explained(float32_pieces=False)
    assert products == {"FMA: config.float32_pieces is False": 3}
    assert text == "3 launches by FMA: config.float32_pieces is False"


def test_explain_is_silent_where_there_is_no_choice() -> None:
    products, text, page = explained(target=NO_TILES)
    assert products == {"FMA: this instruction set has no tiles of bfloat16": 3}
    assert (text, page) == ("", "")


def test_a_file_keeps_the_precision_that_it_was_compiled_with(tmp_path: Path) -> None:
    model, x = Model(), torch.randn(64, K)
    for name in ("highest", "high", "medium"):
        path = str(tmp_path / name)
        with precision(name), torch.no_grad():
            aot.compile(model, (x,), path=path, config=config())
        found = aot.load(path)(x)
        assert exactness(found, exact_product(model, x)) == name


def test_gradients_are_as_exact_as_the_setting_says() -> None:
    model, backend = Model(), get_backend(compiler_config=config())
    call = torch.compile(model, backend=backend)
    for name in ORDER:
        x = torch.randn(64, K, requires_grad=True)
        with precision(name):
            call(x).sum().backward()
        exact = model.linear.weight.detach().double().sum(0)
        assert x.grad is not None
        assert exactness(x.grad, exact.expand(64, K)) == name


@pytest.mark.parametrize("setting", ["matmul", "all", "generic"])
def test_the_setting_of_onednn_is_the_one_that_counts(setting: str) -> None:
    model = Model()
    call = torch.compile(model, backend=get_backend(compiler_config=config()))
    backends: Any = torch.backends
    parts = {"matmul": backends.mkldnn.matmul, "all": backends.mkldnn, "generic": backends}
    part = parts[setting]
    forget_precisions()
    x = torch.randn(64, K)
    with torch.no_grad():
        for value, name in (
            ("ieee", "highest"),
            ("tf32", "high"),
            ("bf16", "medium"),
            ("none", "highest"),
        ):
            with settable():
                part.fp32_precision = value
            try:
                assert exactness(call(x), exact_product(model, x)) == name
            finally:
                with settable():
                    part.fp32_precision = "none"


def test_without_tiles_no_setting_changes_anything() -> None:
    model, x = Model(), torch.randn(64, K)
    call = torch.compile(model, backend=get_backend(compiler_config=config(NO_TILES)))
    with torch.no_grad():
        first = call(x)
        for name in ORDER:
            with precision(name):
                assert torch.equal(call(x), first)


def test_pieces_are_off_where_they_are_not_wanted() -> None:
    model = Model()
    call = torch.compile(model, backend=get_backend(compiler_config=config(float32_pieces=False)))
    x = torch.randn(64, K)
    with torch.no_grad():
        first = call(x)
        for name in ORDER:
            with precision(name):
                assert torch.equal(call(x), first)
    assert exactness(first, exact_product(model, x)) == "highest"
