"""Which layers of a module are quantised, and what that is said to lose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.backend.quantization import Quantization, quantization
from kernelmill.config import CompilerConfig
from kernelmill.config.schemes import Quantize, scheme_of
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError


class Model(nn.Module):
    """Products written in the ways that layers of torch and transformers have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 64)
        self.linear = nn.Linear(64, 32)
        self.conv1d = nn.Parameter(torch.randn(32, 48) / 6)
        self.bias = nn.Parameter(torch.randn(48))
        self.plain = nn.Parameter(torch.randn(48, 32) / 7)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.addmm(self.bias, self.linear(x), self.conv1d).relu() @ self.plain
        return {"hidden": hidden, "classes": self.head(hidden)}


def found(quantize: Quantize, **options: Any) -> Quantization:
    model = Model().eval()
    return quantization(model, model, quantize, **options)


def example(rows: int = 6) -> Tensor:
    torch.manual_seed(rows)
    return torch.randn(rows, 64)


def test_layers_are_those_of_weights_of_two_dims() -> None:
    layers = {each.name: each for each in found("int8").layers}
    assert list(layers) == ["conv1d", "plain", "table", "linear", "head"]
    assert [each.scheme for each in layers.values()] == [*["int8"] * 4, ""]
    assert layers["head"].reason == "it has fewer than 16 outputs"
    assert all(each.error is None for each in layers.values())


@pytest.mark.parametrize(
    "examples", [(example(),), {"x": example()}, [(example(),), (example(2),)]]
)
def test_what_layers_lose_is_measured_on_examples(examples: Any) -> None:
    quantized = found("int8", examples=examples)
    assert quantized.error is not None and 0.001 < quantized.error < 0.05
    errors = {each.name: each.error for each in quantized.layers}
    assert errors.pop("head") is None and errors.pop("table") is None  # it is not called
    assert all(error is not None and 0.001 < error < 0.05 for error in errors.values())
    told = str(quantized)
    assert "linear: int8, relative error 0.0" in told
    assert "results of the model: relative error 0.0" in told


def test_a_layer_whose_inputs_are_found_to_make_no_groups() -> None:
    layers = {e.name: e for e in found("int4-weights", examples=(example(),)).layers}
    assert layers["conv1d"].scheme == "int4-weights"
    assert (layers["plain"].scheme, layers["plain"].error) == ("", None)
    assert layers["plain"].reason == "its inputs are no multiple of 32"


def test_fewer_bits_lose_more() -> None:
    errors = [
        found(scheme, examples=(example(),)).error or 0.0
        for scheme in ("int8-weights", "int4-weights")
    ]
    assert 5 * errors[0] < errors[1]


def test_layers_stay_as_they_are_until_the_error_holds() -> None:
    whole = found("int8", examples=(example(),)).error
    assert whole is not None
    quantized = found("int8", examples=(example(),), max_error=0.8 * whole)
    assert quantized.error is not None and quantized.error <= 0.8 * whole
    left = [each for each in quantized.layers if each.reason.startswith("max_error")]
    kept = [each for each in quantized.layers if each.scheme]
    assert left and kept
    assert min(e.model_error or 0 for e in left) >= max(e.model_error or 0 for e in kept)
    assert isinstance(quantized.quantize, dict)
    assert {each.name for each in left} == {
        name for name, scheme in quantized.quantize.items() if scheme is None
    }
    model = Model().eval()
    again = quantization(model, model, quantized.quantize, examples=(example(),))
    assert again.error == quantized.error
    assert found("int8", examples=(example(),), max_error=2 * whole).error == whole


@pytest.mark.parametrize(
    ("quantize", "options", "error", "text"),
    [
        ({"linaer": "int8"}, {}, ConfigError, "no layer of Model; the nearest are 'linear'"),
        ({"bias": "int8"}, {}, ConfigError, "'bias' is the name of no layer"),
        ({"head": "int8"}, {}, ConfigError, "no layer to quantise: .*head: it has fewer than 16"),
        ("int8", {"max_error": 0.1}, ConfigError, "pass examples"),
        (
            {"table": None, "*": "int8"}, {"max_error": 1e-9, "examples": (example(),)},
            ConfigError, "only if no layer",
        ),
        ("int8", {"examples": example()}, ConfigTypeError, "Tensor is no tuple"),
        ("int8", {"examples": []}, InputError, "there are none"),
    ],
)  # fmt: skip
def test_what_cannot_be(quantize: Any, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        found(quantize, **options)


def test_a_model_without_layers() -> None:
    for model, why in (
        (nn.Sequential(nn.LayerNorm(3), nn.BatchNorm1d(3)), "it has no weights of products"),
        (nn.Embedding(4, 32), "it has fewer than 16 rows"),
        (nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(4, 16, 1)), "0 and 1 more: it has fewer"),
        (nn.Conv2d(16, 16, 3), "pass examples"),
        (nn.Conv2d(32, 64, 3, groups=4), "it has fewer than 16 input channels of a group"),
        (nn.ConvTranspose2d(32, 64, 3, groups=8), "it has fewer than 16 input channels of a group"),
        (nn.ConvTranspose2d(32, 8, 3), "it has fewer than 16 outputs"),
    ):
        with pytest.raises(ConfigError, match=f"no layer to quantise: .*{why}"):
            quantization(model, model, "int8")


def test_tables_of_embeddings() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, 32, padding_idx=0), nn.Linear(32, 100))
    index = torch.randint(0, 100, (3, 5))
    quantized = quantization(model, model, "int8", examples=(index,))
    assert [each.scheme for each in quantized.layers] == ["int8", "int8"]
    assert all(0.001 < (each.error or 0) < 0.02 for each in quantized.layers)
    four = quantization(model, model, "int4-weights", examples=(index,)).layers
    assert four[0].reason == "int4-weights is for products of matrices" and four[1].scheme
    renewed = nn.Sequential(nn.Embedding(100, 32, max_norm=1.0), nn.Linear(32, 100))
    before = quantization(renewed, renewed, "int8", examples=(index,)).layers
    assert before[0].error is None  # each call writes to it


class Vision(nn.Module):
    """Convolutions of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(3, 24, 3, 2, padding=1)
        self.norm = nn.BatchNorm2d(24)
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.point = nn.Conv2d(24, 32, 1)
        self.wide = nn.Conv2d(32, 32, 3, padding="same", dilation=2)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.head = nn.Linear(16, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(self.norm(self.stem(x)).relu())
        x = self.point(x).relu()
        return self.head(self.up(x + self.wide(x)).mean((2, 3)))


def seen(model: nn.Module, x: Tensor) -> Quantization:
    return quantization(model, model, "int8", examples=(x,))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv3d(64, 64, 3, groups=2),
        nn.ConvTranspose3d(32, 32, 3, stride=3, groups=2),
        nn.ConvTranspose3d(16, 16, 3, stride=2),
    ],
)
def test_convolutions_that_are_left_to_torch(layer: nn.Module) -> None:
    assert isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d))
    model = nn.Sequential(layer).eval()
    (own,) = seen(model, torch.randn(1, layer.in_channels, 3, 3, 3)).layers
    assert (own.scheme, own.reason) == ("", "the compiler computes it in another way")


def test_convolutions_get_the_ranges_of_examples() -> None:
    model, x = Vision().eval(), torch.randn(2, 3, 12, 12)
    without = {each.name: each for each in quantization(model, model, "int8").layers}
    assert [name for name, each in without.items() if each.scheme] == ["head"]
    assert without["wide"].reason.endswith("pass examples=(x,)")
    quantized = seen(model, x)
    layers = {each.name: each for each in quantized.layers}
    assert layers["stem"].reason == "it has fewer than 16 input channels"
    assert layers["point"].scheme.startswith("int8(-") and layers["wide"].scheme[:8] == "int8(0, "
    assert layers["depthwise"].scheme.startswith("int8(0, ")
    assert layers["head"].scheme == "int8"
    of_images = ("depthwise", "point", "wide", "up")
    assert all(0 < (layers[name].error or 0) < 0.03 for name in of_images)
    assert isinstance(quantized.quantize, dict)
    assert list(quantized.quantize) == [*of_images, "*"]
    again = quantization(model, model, quantized.quantize, examples=(x,))
    assert (again.error, again.quantize) == (quantized.error, quantized.quantize)
    assert quantization(model, model, quantized.quantize).layers[3].scheme == layers["wide"].scheme


def test_ranges_are_of_all_examples() -> None:
    model = nn.Sequential(nn.Conv1d(16, 16, 3))
    x = torch.rand(1, 16, 8)
    x[0, 0, :2] = torch.tensor((-2.0, 3.0))
    for examples in ([(x,), (x.abs() * 2,)], [(x * 0.5,), (x,), (x.abs() * 2,)]):
        (layer,) = quantization(model, model, "int8", examples=examples).layers
        assert layer.scheme == "int8(-2, 6)"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_examples_that_have_no_range(number: float) -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1))
    x = torch.full((1, 16, 2, 2), number)
    layers = seen(model, x).layers
    assert {each.reason for each in layers} == {"its inputs on the examples are not finite"}


def test_max_error_leaves_out_convolutions() -> None:
    model, x = Vision().eval(), torch.randn(2, 3, 12, 12)
    whole = seen(model, x).error
    assert whole is not None
    found = quantization(model, model, "int8", examples=(x,), max_error=0.9 * whole)
    assert found.error is not None and found.error <= 0.9 * whole
    assert isinstance(found.quantize, dict)
    left = [each.name for each in found.layers if each.reason.startswith("max_error")]
    assert left and all(found.quantize[name] is None for name in left)


def test_the_option() -> None:
    config = CompilerConfig()
    config.quantize = "int8"
    config.quantize = {"c": "int8(-1.5, 2)"}
    config.quantize = {"a.*": "int4-weights", "b": None}
    assert ("config.quantize", "{'a.*': 'int4-weights', 'b': None}") in config.ingredients()
    for wrong, text in (
        ("int9", "did you mean 'int8'"), ("int8(1, 2)", "is not one of"),
        ({"a": "int8w"}, "quantize\\['a'\\]"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=text):
            config.quantize = wrong
    others: tuple[Any, ...] = (8, {1: "int8"}, {"a": 8})
    for wrong in others:
        with pytest.raises(ConfigTypeError):
            config.quantize = wrong
    kept: Quantize = config.quantize
    assert scheme_of(kept, "a.0") == "int4-weights"
    assert scheme_of(kept, "b") is scheme_of(kept, "c") is None
