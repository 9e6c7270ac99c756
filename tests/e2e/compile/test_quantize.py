"""`quantize=`: a model computes with small integers, and everything else stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.config.schemes import SCHEMES
from tests.fresh import FreshProcesses

LOSS = {"int8": 0.02, "int8-weights": 0.01, "int4-weights": 0.15, "int4-weights-128": 0.15}


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(128)
        self.up, self.down = nn.Linear(128, 256), nn.Linear(256, 128)
        self.head = nn.Linear(128, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return hidden, self.head(hidden[:, 0])


def rows(batch: int = 2, length: int = 5) -> Tensor:
    torch.manual_seed(batch + length)
    return torch.randn(batch, length, 128)


def loss(found: Any, wanted: Any) -> float:
    pairs = list(zip(found, wanted, strict=True))
    lost = sum(float((a - b).square().sum()) for a, b in pairs)
    return (lost / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_are_those_that_the_report_tells(scheme: str, tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    compiled = kernelmill.compile(model, quantize=scheme, examples=(x,), cache_dir=tmp_path)
    with torch.no_grad():
        lost = loss(compiled(x), model(x))
    quantized = compiled.report().quantized
    assert 0 < lost < LOSS[scheme]
    assert lost == pytest.approx(quantized.error, rel=1e-3)
    assert [each.scheme for each in quantized.layers] == [scheme, scheme, ""]
    assert not compiled.report().torch


def test_sizes_vary_and_the_next_process_traces_nothing(
    tmp_path: Path, fresh: FreshProcesses
) -> None:
    script = f"""
import torch, kernelmill
from tests.e2e.compile.test_quantize import Encoder, loss, rows
model = Encoder().eval()
compiled = kernelmill.compile(model, quantize="int8", cache_dir={str(tmp_path)!r})
with torch.no_grad():
    for batch, length in ((2, 5), (3, 7), (4, 9)):
        x = rows(batch, length)
        assert 0 < loss(compiled(x), model(x)) < 0.02
print(compiled.report().statistics)
"""
    assert "'traced': 2" in fresh.output("-c", script, cwd=".")
    assert "'traced': 0" in fresh.output("-c", script, cwd=".")


def test_gears(tmp_path: Path) -> None:
    model = Encoder().eval()
    compiled = kernelmill.compile(
        model, quantize="int8", gears={"x": {1: [4, 8]}}, cache_dir=tmp_path
    )
    with torch.no_grad():
        for length in (4, 8, 4):
            x = rows(2, length)
            assert 0 < loss(compiled(x), model(x)) < 0.02
    assert compiled.report().statistics["traced"] == 1


def test_weights_that_change_are_quantised_anew(tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    compiled = kernelmill.compile(model, quantize="int8", cache_dir=tmp_path)
    with torch.no_grad():
        compiled(x)
        model.up.weight.mul_(-3)
        model.down.weight.data[3] = 7.0
        assert 0 < loss(compiled(x), model(x)) < 0.02
        model.up.weight = nn.Parameter(torch.randn(256, 128))
        assert 0 < loss(compiled(x), model(x)) < 0.02
    assert compiled.report().statistics["traced"] == 1


def test_the_model_and_other_compiled_ones_stay_as_they_are(tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = kernelmill.compile(model, quantize="int8", cache_dir=tmp_path)
    whole = kernelmill.compile(model, cache_dir=tmp_path)
    with torch.no_grad():
        small(x)
        torch.testing.assert_close(whole(x), model(x))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_calls_that_need_gradients_are_not_quantised(tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    compiled = kernelmill.compile(model, quantize="int8", cache_dir=tmp_path)
    torch.testing.assert_close(compiled(x), model(x))
    (reason,) = compiled.report().torch
    assert reason.endswith("nothing is quantised")
    compiled(x)[0].sum().backward()
    found = model.up.weight.grad
    model.zero_grad()
    model(x)[0].sum().backward()
    torch.testing.assert_close(found, model.up.weight.grad)


def test_attention_layers_by_pattern(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    compiled = kernelmill.compile(
        model, quantize={"self_attn.*": "int8", "linear2": None, "*": "int8-weights"},
        cache_dir=tmp_path,
    )  # fmt: skip
    schemes = {each.name: each.scheme for each in compiled.report().quantized.layers}
    assert schemes == {
        "self_attn.in_proj": "int8", "self_attn.out_proj": "int8", "linear1": "int8-weights",
        "linear2": "",
    }  # fmt: skip
    x = torch.randn(2, 6, 64)
    with torch.no_grad():
        assert 0 < loss((compiled(x),), (model(x),)) < 0.02


def test_no_rows(tmp_path: Path) -> None:
    model = nn.Linear(32, 16).eval()
    compiled = kernelmill.compile(model, quantize="int8", cache_dir=tmp_path)
    with torch.no_grad():
        assert compiled(torch.randn(0, 32)).shape == (0, 16)


def test_a_file(tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    path = kernelmill.aot.compile(model, (x,), quantize="int8", path=tmp_path / "m.kmill")
    with torch.no_grad():
        assert 0 < loss(kernelmill.aot.load(path)(x), model(x)) < 0.02
    with pytest.raises(kernelmill.ConfigError, match="'ups' is the name of no layer"):
        kernelmill.aot.compile(model, (x,), quantize={"ups": "int8"}, path=tmp_path / "n.kmill")


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem, self.norm = nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32)
        self.first, self.second = nn.Conv2d(32, 48, 1), nn.Conv2d(48, 32, 3, padding=1)
        self.head = nn.Linear(32, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        x = x + self.second(self.first(x).relu()).relu()
        return self.head(nn.functional.avg_pool2d(x, 2).mean((2, 3)))


def test_convolutions_by_the_ranges_of_examples(tmp_path: Path) -> None:
    model, x = Images().eval(), torch.randn(3, 3, 16, 16)
    compiled = kernelmill.compile(model, quantize="int8", examples=(x,), cache_dir=tmp_path / "a")
    quantized = compiled.report().quantized
    again = kernelmill.compile(model, quantize=quantized.quantize, cache_dir=tmp_path / "b")
    file = kernelmill.aot.compile(
        model, (x,), quantize=quantized.quantize, path=tmp_path / "m.kmill"
    )
    with torch.no_grad():
        found, wanted = compiled(x), model(x)
        assert torch.equal(found, again(x))
        assert torch.equal(found, kernelmill.aot.load(file)(x))
        assert loss((found,), (wanted,)) == pytest.approx(quantized.error, rel=1e-2)
        model.second.weight.mul_(-2)
        assert 0 < loss((compiled(x),), (model(x),)) < 0.03
    assert [bool(each.scheme) for each in quantized.layers] == [False, True, True, True]


@pytest.mark.parametrize(
    ("kind", "quantize", "chosen"),
    [
        ("convolutions", "int8", [False, True, True]),
        ("layers", {"0": "int8", "*": None}, [True, False]),
    ],
)
def test_layers_of_a_class_of_torchs_are_chosen_by_name(
    kind: str, quantize: Any, chosen: list[bool], tmp_path: Path
) -> None:
    """torch traces the forward of its own classes as a bound method, not as ours."""
    torch.manual_seed(6)
    if kind == "convolutions":
        convolutions = nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Conv2d(32, 16, 1)
        model, x = nn.Sequential(*convolutions).eval(), torch.randn(1, 3, 16, 16)
    else:
        model = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 64)).eval()
        x = torch.randn(3, 128)
    compiled = kernelmill.compile(model, quantize=quantize, examples=(x,), cache_dir=tmp_path)
    quantized = compiled.report().quantized
    with torch.no_grad():
        lost = loss((compiled(x),), (model(x),))
    assert [bool(each.scheme) for each in quantized.layers] == chosen
    assert 0 < lost < 0.05 and lost == pytest.approx(quantized.error, rel=1e-2)


class Film(nn.Module):
    """Convolutions of three axes, and of groups."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv3d(3, 18, 3, padding=1)
        self.point = nn.Conv3d(18, 34, 1)
        self.deep = nn.Conv3d(34, 40, (3, 2, 3), stride=(2, 1, 1), padding=(1, 0, 2))
        self.groups = nn.Conv2d(40, 36, 3, groups=2)
        self.head = nn.Linear(36, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.deep(self.point(self.stem(x).relu()).relu()).relu()
        return self.head(self.groups(x.flatten(2, 3)).relu().mean((2, 3)))


class Enlarged(nn.Module):
    """Transposed convolutions: of phases alike, of different ones, of one, and of groups."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.stem = nn.Conv2d(3, 20, 3)
        self.alike = nn.ConvTranspose2d(20, 24, 4, 2, padding=1)
        self.different = nn.ConvTranspose2d(24, 34, 3, 2)
        self.one = nn.ConvTranspose2d(34, 36, (3, 2), groups=2)
        self.head = nn.Linear(36, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.alike(self.stem(x).relu()).relu()
        return self.head(self.one(self.different(x).relu()).relu().mean((2, 3)))


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(("kind", "sizes"), [(Film, (3, 5, 7, 6)), (Enlarged, (3, 6, 5))])
def test_convolutions_of_groups_of_three_axes_and_transposed_ones(
    kind: type[nn.Module], sizes: tuple[int, ...], images: int, tmp_path: Path
) -> None:
    model, x = kind().eval(), torch.randn(images, *sizes)
    compiled = kernelmill.compile(model, quantize="int8", examples=(x,), cache_dir=tmp_path)
    quantized = compiled.report().quantized
    with torch.no_grad():
        lost = loss((compiled(x),), (model(x),))
    assert [bool(each.scheme) for each in quantized.layers] == [False, True, True, True, True]
    assert 0 < lost < 0.05 and lost == pytest.approx(quantized.error, rel=1e-2)
    assert not compiled.report().torch


class Slim(nn.Module):
    """A convolution, and one with a part of its weight, whose inputs are larger."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = nn.Conv2d(16, 32, 3)
        self.last = nn.Conv2d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.conv(x).mean((1, 2, 3), keepdim=True)
        return self.last(nn.functional.conv2d(100 * x, self.conv.weight[:16])) + whole


def test_a_weight_of_which_the_model_makes_another_one(tmp_path: Path) -> None:
    """Ranges are those of calls with the weight itself."""
    model, x = Slim().eval(), torch.rand(1, 16, 6, 6)
    compiled = kernelmill.compile(model, quantize="int8", examples=(x,), cache_dir=tmp_path)
    quantized = compiled.report().quantized
    conv, last = quantized.layers
    assert (conv.scheme, conv.error) == ("", None) and last.scheme.startswith("int8(")
    assert conv.reason == "the model computes another tensor from its weight"
    assert quantized.quantize == {"last": last.scheme, "*": "int8"}
    with torch.no_grad():
        assert loss((compiled(x),), (model(x),)) == pytest.approx(quantized.error, rel=1e-2)


def test_by_the_option_of_the_config(tmp_path: Path) -> None:
    model, x = Encoder().eval(), rows()
    compiled = torch.compile(model, backend="kernelmill", options={"quantize": "int8"})
    with torch.no_grad():
        assert 0 < loss(compiled(x), model(x)) < 0.02
