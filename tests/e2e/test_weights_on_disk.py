"""Models whose own weights are moved to files."""

from __future__ import annotations

import copy
import logging
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill import InputError
from kernelmill.core.errors import ConfigTypeError
from kernelmill.inference import cache_compile, finish_packing, move_weights_to_disk
from tests.kept_methods import COMPILED

WIDTH = 512


class Tied(nn.Module):
    """Two layers with one weight, a view of a third one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight
        self.third = nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16)
        self.part = nn.Parameter(self.third.weight.data[: WIDTH // 2])
        self.table = nn.Buffer(torch.randn(WIDTH, WIDTH).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x).relu()) @ self.table
        return x[:, : WIDTH // 2] + self.third(x.bfloat16()).float() @ self.part.float().t()


def resident_bytes(folder: Path) -> int:
    """Bytes of files below the folder that are mapped and in memory."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = str(folder) in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def test_moved_weights_are_what_they_were(tmp_path: Path) -> None:
    model = Tied()
    expected, strides = copy.deepcopy(model.state_dict()), model.table.stride()
    assert move_weights_to_disk(model, tmp_path) is model
    assert not any(tmp_path.iterdir())  # they have no names
    torch.testing.assert_close(model.state_dict(), expected, rtol=0, atol=0)
    assert model.table.stride() == strides and model.first.weight.requires_grad
    assert model.second.weight is model.first.weight
    address = model.first.weight.data_ptr()
    move_weights_to_disk(model, tmp_path)
    assert model.first.weight.data_ptr() == address
    with torch.no_grad():
        model.third.weight[0, 0] = 7
        model.first.bias[0] = 8
    assert model.part[0, 0] == 7 and model.first.bias[0] == 8
    model(torch.randn(2, WIDTH)).sum().backward()
    assert model.first.weight.grad is not None


@COMPILED
def test_what_is_packed_leaves_memory(tmp_path: Path) -> None:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(8)]
    model = nn.Sequential(*layers).eval()
    x = torch.randn(3, WIDTH)
    with torch.no_grad():
        expected = model(x)
        compiled = kernelmill.compile(model, cache_dir=tmp_path, weights_on_disk=True)
        torch.testing.assert_close(model(x), expected, rtol=0, atol=0)
        assert resident_bytes(tmp_path) >= 8 * WIDTH * WIDTH * 4
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)
        finish_packing()
        torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)
        assert resident_bytes(tmp_path) < WIDTH * WIDTH * 4
        layers[3].weight[5] = 2  # in memory now, and noticed
        expected = model(x)
        torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)


@COMPILED
def test_cached_methods_and_inference_tensors(tmp_path: Path) -> None:
    with torch.inference_mode():
        model = Tied().eval()
        x = torch.randn(3, WIDTH)
        expected = model(x)
        move_weights_to_disk(model, tmp_path)
        method = cache_compile(model.forward, cache_dir=tmp_path)
        torch.testing.assert_close(method(x), expected, rtol=2e-2, atol=2e-2)
        model.first.bias.zero_()
        torch.testing.assert_close(method(x), model(x), rtol=2e-2, atol=2e-2)


def test_what_stays_in_memory(tmp_path: Path) -> None:
    model = nn.Module()
    tensors = {
        "small": torch.randn(16),
        "shared": torch.randn(WIDTH, WIDTH).share_memory_(),
        "conjugate": torch.randn(WIDTH, WIDTH, dtype=torch.complex64).conj(),
        "meta": torch.empty(WIDTH, WIDTH, device="meta"),
    }
    for name, tensor in tensors.items():
        model.register_buffer(name, tensor)
    addresses = [tensor.data_ptr() for tensor in tensors.values()]
    move_weights_to_disk(model, tmp_path)
    assert [tensor.data_ptr() for tensor in model.buffers()] == addresses


def test_without_a_folder_they_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(WIDTH, WIDTH)
    address = model.weight.data_ptr()
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING, "kernelmill"):
        move_weights_to_disk(model, os.fspath(tmp_path / "file"))
    assert "weights stay in memory" in caplog.text and model.weight.data_ptr() == address


def test_a_module_whose_forward_is_a_function(tmp_path: Path) -> None:
    model = nn.Linear(WIDTH, WIDTH).eval()
    plain, address = model.forward, model.weight.data_ptr()
    model.forward = lambda x: plain(x) * 2
    kernelmill.compile(model, cache_dir=tmp_path, weights_on_disk=True)
    assert model.weight.data_ptr() != address


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="not function"):
        kernelmill.compile(lambda x: x, weights_on_disk=True)
    with pytest.raises(ConfigTypeError, match="weights_on_disk: 1 is no bool"):
        kernelmill.compile(nn.ReLU(), weights_on_disk=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigTypeError, match="names no folder"):
        move_weights_to_disk(nn.ReLU(), 3)
