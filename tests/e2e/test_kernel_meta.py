"""What a model leaves in kernel_meta, and what the next run takes from there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.compiler.report import GraphReport
from kernelmill.config import CompilerConfig
from tests.compiled import reported
from tests.fresh import FreshProcesses

pytestmark = pytest.mark.usefixtures("strict")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[GraphReport]]:
    """Compile and call a model from nothing, with a kernel_meta of this test's own."""

    def run(model: Callable[..., Any], *args: Tensor, **options: Any) -> list[GraphReport]:
        torch._dynamo.reset()
        config = CompilerConfig()
        config.experimental_config.kernel_meta_dir = str(tmp_path / "kernel_meta")
        backend, reports = reported(config=config)
        result = torch.compile(model, backend=backend, **options)(*args)
        if result.requires_grad:
            result.sum().backward()
        torch.testing.assert_close(result, model(*args))
        return reports

    return run


def compiled(reports: list[GraphReport]) -> int:
    return sum(report.compiled for report in reports)


def kernels(reports: list[GraphReport]) -> int:
    return sum(len(report.kernels) for report in reports)


class Chain(nn.Module):
    """Kernels that do not fuse into one: matrix products with something between them."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8), last)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


SQUARE = """
import torch
from kernelmill.backend.entry import Backend
made = []
square = torch.compile(lambda x: x * x, backend=Backend(on_compiled=made.append))
y = square(torch.tensor([1., 4., 9.]))
print(y.tolist(), sum(each.report.compiled for each in made))
"""


def square_process(fresh: FreshProcesses, folder: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": str(folder),
    }
    environment.pop("KERNELMILL_KERNEL_META")
    return fresh.output("-c", SQUARE, cwd=folder, env=environment).strip()


def test_a_square_leaves_three_files_and_the_next_process_compiles_nothing(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    assert square_process(fresh, tmp_path) == "[1.0, 16.0, 81.0] 1"
    info, launch, image = sorted((tmp_path / "kernelmill" / "kernel_meta").iterdir())
    assert [p.suffix for p in (info, launch, image)] == [".info", ".json", ".o"]
    assert info.stem == launch.stem == image.stem
    assert info.stem.startswith("Square_")
    assert image.read_bytes().startswith(b"\x7fELF")
    operator = json.loads(info.read_text())["op_info"]
    (tensor,) = operator["inputs"][0]
    assert (tensor["dtype"], tensor["shape"], tensor["range"]) == ("float32", [3], [[3, 3]])
    assert operator["kernel_name"] == info.stem
    assert operator["gen_model"] == "single"
    assert not operator["is_dynamic_shape"]
    assert json.loads(launch.read_text())["binFileName"] == info.stem
    assert square_process(fresh, tmp_path) == "[1.0, 16.0, 81.0] 0"


def test_one_operator_changed_compiles_one_kernel(run) -> None:
    x = torch.randn(4, 16)
    first = run(Chain(nn.Softmax(-1)).eval().requires_grad_(False), x)
    assert compiled(first) == kernels(first) > 2
    again = run(Chain(nn.Softmax(-1)).eval().requires_grad_(False), x)
    assert (compiled(again), kernels(again)) == (0, kernels(first))
    edited = run(Chain(nn.LogSoftmax(-1)).eval().requires_grad_(False), x)
    assert compiled(edited) == 1


def test_24_layers_compile_the_kernels_of_one(run) -> None:
    def layers(count: int) -> nn.Module:
        one = [nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Tanh()) for _ in range(count)]
        return nn.Sequential(*one).eval().requires_grad_(False)

    x = torch.randn(4, 16)
    two = run(layers(2), x)
    assert compiled(two) == kernels(two)
    many = run(layers(24), x)
    assert compiled(many) == 0


def test_forward_and_backward_are_kept(run) -> None:
    x = torch.randn(4, 16)
    first = run(Chain(nn.Softmax(-1)), x)
    assert len(first) == 2
    assert compiled(first) == kernels(first)
    assert compiled(run(Chain(nn.Softmax(-1)), x)) == 0


def test_dynamic_shapes_are_kept(run, tmp_path: Path) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.softmax(x * 3, -1)

    first = run(model, torch.randn(5, 7), dynamic=True)
    assert compiled(first) == kernels(first) > 0
    assert compiled(run(model, torch.randn(9, 11), dynamic=True)) == 0
    name = first[0].kernels[0].name
    operator = json.loads((tmp_path / "kernel_meta" / f"{name}.info").read_text())["op_info"]
    assert operator["is_dynamic_shape"]
    (tensor,) = operator["inputs"][0]
    assert tensor["shape"] == [-1, -1]
    assert tensor["range"] == [[2, None], [2, None]]


def test_a_miss_names_what_differs(run) -> None:
    run(lambda x: x.exp(), torch.randn(3))
    (report,) = run(lambda x: x.exp(), torch.randn(70))
    assert report.kernels[0].differs == ("kernel",)
