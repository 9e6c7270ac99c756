"""KERNELMILL_TARGET and config.target: all that is compiled and run follows them, and is kept apart
by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import kernelmill
from kernelmill import CompilerConfig, codegen, get_backend
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.compiler.report import GraphReport
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.core.target import isa
from kernelmill.core.target.isa import NAMED, Isa, host_isa, machine_isa
from kernelmill.inference import cache_compile, set_dim_gears
from kernelmill.kernel.text import parse_kernel
from kernelmill.store.sealed import SealedFile
from kernelmill.store.store import open_store
from tests.compiled import reported
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
    """A folder of kernels of the test's own; no level is forced."""
    machine_isa()  # which is kept: before a test makes the machine another
    monkeypatch.delenv("KERNELMILL_TARGET", raising=False)
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def force(monkeypatch: pytest.MonkeyPatch, level: int) -> str:
    monkeypatch.setenv("KERNELMILL_TARGET", f"x86-64-v{level}")
    return str(NAMED[f"x86-64-v{level}"])


def forced_config(level: int) -> CompilerConfig:
    config = CompilerConfig()
    config.target = f"x86-64-v{level}"
    return config


def targets(folder: Path) -> set[str]:
    """Those that the kernels in a folder were made for."""
    return {json.loads(f.read_text())["ingredients"]["isa"] for f in folder.glob("*.info")}


WAYS = ["default", "dynamic", "reduce-overhead", "static", "gears"]


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_compiled_functions_are_of_that_level(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, way: str
) -> None:
    forced = force(monkeypatch, level)
    run(CompilerConfig(), tmp_path, way)
    assert targets(kernels) == {forced}


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("way", [*WAYS, "super kernels", "tuned"])
def test_a_backend_may_have_a_level_of_its_own(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, way: str
) -> None:
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")  # the option goes before it
    config = forced_config(level)
    config.experimental_config.super_kernel_optimize = way == "super kernels"
    config.aoe_config.aoe_mode = "2" if way == "tuned" else None
    reports = run(config, tmp_path, way)
    forced = str(NAMED[f"x86-64-v{level}"])
    assert {report.isa for report in reports} == targets(kernels) == {forced}


def run(config: CompilerConfig, folder: Path, way: str) -> list[GraphReport]:
    """Compile a model, call it with two sizes, and compare with eager."""
    model, x = Model(folder), torch.randn(5, 24)
    if way in ("reduce-overhead", "static"):
        config.mode = "reduce-overhead"
    config.experimental_config.aclgraph._aclnn_static_shape_kernel = way == "static"
    if way == "static":
        config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir = str(folder)
    if way == "gears":
        set_dim_gears(x, {0: [3, 5]})
    backend, reports = reported(config=config)
    compiled = torch.compile(model, backend=backend, dynamic=way == "dynamic" or None)
    with torch.no_grad():
        assert_close(compiled(x), model(x))
        assert_close(compiled(x[:3]), model(x[:3]))
    return reports


def test_native_goes_before_the_environment(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, 2)
    config = CompilerConfig()
    config.target = "native"
    run(config, tmp_path, "default")
    assert targets(kernels) == {str(machine_isa())}


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
    objects = set(kernels.glob("*.o"))
    monkeypatch.delenv("KERNELMILL_TARGET")
    for number, level in enumerate((*TARGETS, *TARGETS)):
        model = Model(tmp_path / "cache")
        model.cached = cache_compile(
            model.run, config=forced_config(level), cache_dir=str(tmp_path / "cache")
        )
        with torch.no_grad():
            assert_close(model.cached(x), model.run(x))
        assert model.cached.statistics["loaded"] == (number >= len(TARGETS))
    assert set(kernels.glob("*.o")) == objects  # equal kernels of equal instruction sets are one


def test_saved_programs_are_compiled_for_their_level_where_objects_are_gone(
    kernels: Path, tmp_path: Path
) -> None:
    x, config = torch.randn(5, 24), forced_config(2)
    config.experimental_config.super_kernel_optimize = True
    for loaded in (0, 1):
        model = Model(tmp_path / "cache")
        model.cached = cache_compile(model.run, config=config, cache_dir=str(tmp_path / "cache"))
        with torch.no_grad():
            assert_close(model.cached(x), model.run(x))
        assert model.cached.statistics["loaded"] == loaded
        assert targets(kernels) == {str(NAMED["x86-64-v2"])}
        for file in kernels.glob("*"):
            file.unlink()
        open_store()._memory.clear()


@pytest.mark.parametrize("level", TARGETS)
def test_a_file_for_a_lower_level_runs_as_it_is(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    x, model, file = torch.randn(5, 24), Model(tmp_path / "cache"), tmp_path / "model.kmill"
    with torch.no_grad():
        kernelmill.aot.compile(
            model.run, (x,), path=file, config=forced_config(level), mmap_packed_weights=True
        )
        monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "elsewhere"))
        assert_close(kernelmill.aot.load(file, rebuild=False)(x), model(x))
        assert_close(kernelmill.aot.load(file)(x), model(x))
    assert not (tmp_path / "elsewhere").exists()
    assert ingredients(file)["kernel.isa"] == str(NAMED[f"x86-64-v{level}"])


def test_a_level_in_the_environment_bounds_files(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if 3 not in TARGETS:
        pytest.skip("this machine has one level")
    x, model, file = torch.randn(5, 24), Model(tmp_path / "cache"), tmp_path / "model.kmill"
    kernelmill.aot.compile(model.run, (x,), path=file, config=forced_config(3))
    force(monkeypatch, 2)
    with pytest.raises(UnsupportedError, match="is x86-64-v3, and KERNELMILL_TARGET is x86-64-v2"):
        kernelmill.aot.load(file, rebuild=False)
    with torch.no_grad():
        assert_close(kernelmill.aot.load(file)(x), model(x))
    assert targets(kernels) == {str(NAMED[f"x86-64-v{level}"]) for level in (2, 3)}


def ingredients(file: Path) -> Mapping[str, str]:
    return read_artifact(SealedFile(file, KMILL)).manifest.ingredients


@pytest.mark.parametrize(("name", "missing"), [("x86-64-v3", "avx2"), ("x86-64-v4", "avx512bw")])
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_a_file_may_be_for_another_machine(
    kernels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    missing: str,
    mode: str,
) -> None:
    config, file = CompilerConfig(), tmp_path / "model.kmill"
    config.target, config.mode = name, mode
    x, model = torch.randn(5, 24), Model(tmp_path / "cache")
    with monkeypatch.context() as patch:
        flags = frozenset(NAMED["x86-64-v2"].cpu_flags)
        patch.setattr(isa, "cpuinfo_flags", lambda: flags)
        kernelmill.aot.compile(model.run, (x,), path=file, config=config)
        assert targets(kernels) == {str(NAMED[name])}
        with pytest.raises(
            UnsupportedError, match=f"is {name}, and this machine .*lacks.* {missing}"
        ):
            kernelmill.aot.load(file, rebuild=False)
        with torch.no_grad():
            assert_close(kernelmill.aot.load(file)(x), model(x))
        assert targets(kernels) == {str(NAMED[name]), str(host_isa())}
    check_objects(file, NAMED[name])
    if int(name[-1]) in TARGETS:
        with torch.no_grad():
            assert_close(kernelmill.aot.load(file, rebuild=False)(x), model(x))


@pytest.mark.parametrize("name", NAMED)
def test_any_target_can_be_named(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    x, model, file = torch.randn(5, 24), Model(tmp_path / "cache"), tmp_path / "model.kmill"
    kernelmill.aot.compile(model.run, (x,), path=file, target=name)
    assert ingredients(file)["kernel.isa"] == str(NAMED[name])
    assert targets(kernels) == {str(NAMED[name])}
    isa._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "elsewhere"))
    runs = not isa.why_not_here(NAMED[name])
    if not runs:
        with pytest.raises(UnsupportedError, match=f"its instruction set is {name}, and this"):
            kernelmill.aot.load(file, rebuild=False)
    with torch.no_grad():
        assert_close(kernelmill.aot.load(file)(x), model(x))
    rebuilt = set() if runs else {str(host_isa())}
    assert targets(tmp_path / "elsewhere") == rebuilt


def test_the_target_goes_before_the_config(kernels: Path, tmp_path: Path) -> None:
    config, file = forced_config(4), tmp_path / "model.kmill"
    kernelmill.aot.compile(
        torch.nn.Linear(3, 3), (torch.ones(2, 3),), path=file, target="x86-64-v2", config=config
    )
    assert config.target == "x86-64-v4"
    assert targets(kernels) == {str(NAMED["x86-64-v2"])}
    with pytest.raises(ConfigError, match="target"):
        kernelmill.aot.compile(torch.nn.Linear(3, 3), (torch.ones(2, 3),), target="i386")


def test_a_file_that_cannot_be_compiled_here_is_refused(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.kmill"
    kernelmill.aot.compile(
        torch.nn.Linear(3, 3), (torch.ones(2, 3),), path=file, target="x86-64-v3"
    )
    flags = frozenset(NAMED["x86-64-v2"].cpu_flags)
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    monkeypatch.setitem(sys.modules, "kernelmill.aot.exporting", None)  # as without LLVM
    with pytest.raises(UnsupportedError, match=r"is x86-64-v3, .*lacks .*It cannot be compiled"):
        kernelmill.aot.load(file)


def check_objects(file: Path, isa: Isa) -> None:
    """The objects in a file are its kernels' code for this ISA, with the vectors that it has."""
    artifact = read_artifact(SealedFile(file, KMILL))
    assembly = ""
    for saved in artifact.kernels:
        kernel = parse_kernel(saved.text.replace("kernel _(", f"kernel {saved.name}(", 1))
        if not kernel.dims:  # sums of symbols may have their terms in another order
            assert artifact.objects[saved.name] == codegen.compile_kernel(kernel, isa)
        assembly += codegen.assembly(kernel, isa)
    assert "ymm" in assembly
    assert ("zmm" in assembly) == (isa.vector_bits == 512)


def test_processes_follow(kernels: Path, tmp_path: Path) -> None:
    code = (
        "import kernelmill.core.target.isa as t, sys;sys.exit(t.host_isa() != t.NAMED['x86-64-v2'])"
    )
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


def test_a_target_above_the_machine_stops_the_compile(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, x = forced_config(4), torch.randn(5, 24)
    model, file = Model(tmp_path / "cache"), tmp_path / "model.kmill"
    flags = frozenset(NAMED["x86-64-v3"].cpu_flags)
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    text = r"config.target='x86-64-v4': this machine is .*, which lacks avx512bw, avx512cd"
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match=text):
        torch.compile(model, backend=get_backend(compiler_config=config))(x)
    with pytest.raises(ConfigError, match=text):
        cache_compile(model.run, config=config)
    text = r"mmap_packed_weights packs .* config.target='x86-64-v4': .*lacks avx512bw"
    with pytest.raises(ConfigError, match=text):
        kernelmill.aot.compile(model.run, (x,), path=file, config=config, mmap_packed_weights=True)
    config.aoe_config.aoe_mode = "2"
    text = r"aoe_mode measures kernels, .* config.target='x86-64-v4': .*lacks avx512bw"
    with pytest.raises(ConfigError, match=text):
        kernelmill.aot.compile(model.run, (x,), path=file, config=config)
    assert not list(kernels.glob("*")) and not file.exists()
