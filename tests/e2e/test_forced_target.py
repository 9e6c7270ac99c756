"""KERNELMILL_TARGET: all that is compiled and run follows it, and is kept apart by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.export import export

import kernelmill
from kernelmill import CompilerConfig, get_backend
from kernelmill.core import isa
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.core.isa import NAMED, host_isa
from kernelmill.inference import cache_compile, set_dim_gears
from tests.tolerances import assert_close
from tests.unit.codegen.native import TARGETS

pytestmark = [
    pytest.mark.usefixtures("strict"),
    pytest.mark.skipif(0 in TARGETS, reason="the levels are those of x86-64"),
]


class Model(nn.Module):
    """A product, a sum over rows and an exponential: packed weights, tiles and libm."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 40)
        self.cached: Any = cache_compile(self.run, cache_dir=str(folder))
        self.eval()

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels of the test's own."""
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def force(monkeypatch: pytest.MonkeyPatch, level: int) -> str:
    monkeypatch.setenv("KERNELMILL_TARGET", f"x86-64-v{level}")
    return str(NAMED[f"x86-64-v{level}"])


def targets(folder: Path) -> set[str]:
    """Those that the kernels in a folder were made for."""
    return {json.loads(f.read_text())["ingredients"]["isa"] for f in folder.glob("*.info")}


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("way", ["default", "dynamic", "reduce-overhead", "static", "gears"])
def test_compiled_functions_are_of_that_level(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, way: str
) -> None:
    forced = force(monkeypatch, level)
    model, x = Model(tmp_path), torch.randn(5, 24)
    config = CompilerConfig()
    if way in ("reduce-overhead", "static"):
        config.mode = "reduce-overhead"
    config.experimental_config.aclgraph._aclnn_static_shape_kernel = way == "static"
    if way == "static":
        config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir = str(tmp_path)
    if way == "gears":
        set_dim_gears(x, {0: [3, 5]})
    compiled = torch.compile(
        model, backend=get_backend(compiler_config=config), dynamic=way == "dynamic" or None
    )
    with torch.no_grad():
        assert_close(compiled(x), model(x))
        assert_close(compiled(x[:3]), model(x[:3]))
    assert targets(kernels) == {forced}


def test_cached_programs_are_kept_apart(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(5, 24)
    for number, level in enumerate((*TARGETS, *TARGETS)):
        force(monkeypatch, level)
        model = Model(tmp_path / "cache")
        with torch.no_grad():
            assert_close(model.cached(x), model.run(x))
        known = number >= len(TARGETS)
        assert model.cached.statistics["loaded"] == known
        assert model.cached.statistics["traced"] == (not known)
    assert targets(kernels) == {str(NAMED[f"x86-64-v{level}"]) for level in TARGETS}


def test_a_compiled_file_is_for_its_level(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, model, file = torch.randn(5, 24), Model(tmp_path / "cache"), tmp_path / "model.kmill"
    force(monkeypatch, 2)
    with torch.no_grad():
        kernelmill.aot.compile(export(model, (x,)), path=file)
        assert_close(kernelmill.aot.load(file)(x), model(x))
        monkeypatch.delenv("KERNELMILL_TARGET")
        if host_isa() != NAMED["x86-64-v2"]:
            with pytest.raises(
                UnsupportedError, match=r"another machine: its instruction set is .*v2"
            ):
                kernelmill.aot.load(file, rebuild=False)


def test_processes_follow(kernels: Path, tmp_path: Path) -> None:
    code = "import kernelmill.core.isa as t, sys; sys.exit(t.host_isa() != t.NAMED['x86-64-v2'])"
    environment = {**os.environ, "KERNELMILL_TARGET": "x86-64-v2"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_a_level_above_the_machine_stops_the_compile(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Model(tmp_path), torch.randn(5, 24)
    flags = frozenset(NAMED["x86-64-v3"].cpu_flags)
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    isa._forced.cache_clear()
    force(monkeypatch, 4)
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="which lacks avx512bw"):
        torch.compile(model, backend=get_backend())(x)
    with pytest.raises(ConfigError, match="which lacks avx512bw"):
        cache_compile(model.run)
    with pytest.raises(ConfigError, match="which lacks avx512bw"):
        kernelmill.aot.compile(model.run, (x,), path=tmp_path / "model.kmill")
    assert not list(kernels.glob("*"))
    isa._forced.cache_clear()
