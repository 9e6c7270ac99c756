"""Folders that cannot be used and a system that gives no threads: results are right all the same,
kernels stay in memory, and there is one warning for each folder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 3


@pytest.fixture
def unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / ("n" * 300)
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(place / "kernels"))
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", str(place / "methods"))
    return place


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text for text in found if "cannot be written" in text]


@torch.no_grad()
def test_compiled_models_stay_in_memory(unusable: Path, caplog: Any):
    model, x = Model().eval(), torch.randn(4, 8)
    compiled = torch.compile(model, backend="kernelmill")
    torch.testing.assert_close(compiled(x), model(x))
    assert len(_warnings(caplog)) == 1
    assert "runs in torch" not in caplog.text


@KEPT
@torch.no_grad()
def test_cached_methods_stay_in_memory(unusable: Path, caplog: Any):
    model, x = Model().eval(), torch.randn(4, 8)
    cached = cache_compile(model.forward)
    for _ in range(3):
        torch.testing.assert_close(cached(x), model(x))
    assert cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    assert len(_warnings(caplog)) == 2  # the folder of kernels, and that of methods


def test_files_are_compiled_without_a_folder_of_kernels(
    unusable: Path, tmp_path: Path, caplog: Any
):
    model, x = Model().eval(), torch.randn(4, 8)
    file = kernelmill.aot.compile(model, (x,), path=str(tmp_path / "model.kmill"))
    torch.testing.assert_close(kernelmill.aot.load(file)(x), model(x).detach())
    assert len(_warnings(caplog)) <= 1


@torch.no_grad()
def test_one_thread_is_enough_to_compile(tmp_path: Path, monkeypatch: Any, caplog: Any):
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    monkeypatch.setattr("kernelmill.core.workers.start_new_thread", refuse)
    monkeypatch.setattr("threading._start_new_thread", refuse)
    model, x = Model().eval(), torch.randn(4, 8)
    compiled = torch.compile(model, backend="kernelmill")
    torch.testing.assert_close(compiled(x), model(x))
    assert "runs in torch" not in caplog.text
    assert list((tmp_path / "kernels").glob("*.o"))
