"""A processor with a tile unit, and a system that lets this process use it or does not: programs,
files, saved entries and packages are for what may be used, and what needs more is refused by name.

The processor and the system's answers are made up. What is compiled for tiles and runs here has no
product in it, and so none.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill import CompilerConfig
from kernelmill.cli.main import main
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.core.target.isa import NAMED, cpuinfo_flags
from kernelmill.core.target.machine import profile
from kernelmill.inference import cache_compile
from kernelmill.store import packages
from tests.fresh import FreshProcesses
from tests.repo.source import ROOT
from tests.tile_unit import AMX, System, machine_with_tiles
from tests.tolerances import assert_close
from tests.unit.store.test_installer import contents

LESS = NAMED["x86-64-v4-bf16"]

pytestmark = [
    pytest.mark.usefixtures("strict"),
    pytest.mark.skipif(
        not set(LESS.cpu_flags) <= cpuinfo_flags(), reason="it runs code for all but the tiles"
    ),
]


class Model(nn.Module):
    """A super kernel of kernels that no tiles are for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.cached: Any = cache_compile(self.run, dynamic=False, cache_dir=str(folder))

    def run(self, x: torch.Tensor) -> torch.Tensor:
        with kernelmill.scope.super_kernel("sp"):
            return torch.softmax(x, -1).sum(0, keepdim=True).exp() * x


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels of the test's own; no level is forced."""
    monkeypatch.delenv("KERNELMILL_TARGET", raising=False)
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def targets(folder: Path) -> set[str]:
    """Those that the objects in a folder were made for, drivers of super kernels among them."""
    return {json.loads(f.read_text())["ingredients"]["isa"] for f in folder.glob("*.info")}


def forbidden() -> System:
    return System(errno.EPERM)


def call(model: Model) -> dict[str, int]:
    """What its cache did for a call."""
    x = torch.randn(64, 33)
    with torch.no_grad():
        assert_close(model.cached(x), model.run(x))
    return dict(model.cached.statistics)


def test_saved_programs_are_kept_apart(kernels: Path, tmp_path: Path) -> None:
    traced, loaded = ({"loaded": n, "traced": 1 - n, "uncached": 0} for n in (0, 1))
    for expected in (traced, loaded):
        with machine_with_tiles(System()):
            assert call(Model(tmp_path / "cache")) == expected
        assert targets(kernels) == {str(AMX)}
    assert list(kernels.glob("sk_*.o"))
    for expected in (traced, loaded):
        with machine_with_tiles(forbidden()):
            assert call(Model(tmp_path / "cache")) == expected
        assert targets(kernels) == {str(AMX), str(LESS)}


def test_a_program_goes_without_and_says_so_once(
    kernels: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kernelmill.core")
    linear, x = nn.Linear(40, 24).bfloat16(), torch.randn(32, 40).bfloat16()
    with machine_with_tiles(forbidden()), torch.no_grad():
        for rows in (32, 20):
            text = str(kernelmill.explain(linear, x[:rows]))
            assert f"for {LESS}" in text
            assert "amx_tile may not be used: the system forbids it" in text
    assert targets(kernels) == {str(LESS)}
    (warning,) = [r for r in caplog.records if "without tiles" in r.getMessage()]
    assert warning.levelname == "WARNING"


UNDER_A_FILTER = """
import errno, torch, kernelmill
from kernelmill.core.target import isa
from tests import seccomp
from tests.tile_unit import AMX
from tests.tolerances import assert_close
seccomp.refuse(158, 0x1023, errno.EPERM)
isa.cpuinfo_flags = lambda: frozenset(AMX.cpu_flags)
model, x = torch.nn.Linear(256, 128).bfloat16(), torch.randn(64, 256).bfloat16()
with torch.no_grad():
    assert_close(torch.compile(model, backend="kernelmill")(x), model(x))
"""


def test_a_process_under_a_filter_of_system_calls_runs_without(
    kernels: Path, fresh: FreshProcesses
) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    done = fresh.run("-c", UNDER_A_FILTER, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths})
    if "no filter of system calls" in done.stderr:
        pytest.skip("no filter of system calls")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("code is compiled without tiles: amx_bf16") == 1
    assert targets(kernels) == {str(LESS)}


def test_a_file_that_needs_tiles_is_refused_by_name_or_compiled_anew(
    kernels: Path, tmp_path: Path
) -> None:
    config, file = CompilerConfig(), tmp_path / "model.kmill"
    config.target = "x86-64-v4-amx"
    model, x = nn.Linear(40, 24).bfloat16(), torch.randn(32, 40).bfloat16()
    kernelmill.aot.compile(model, (x,), path=file, config=config)
    with machine_with_tiles(forbidden()):
        with pytest.raises(
            UnsupportedError,
            match="x86-64-v4-amx, and this process may not use the tile unit: the system",
        ):
            kernelmill.aot.load(file, rebuild=False)
        with torch.no_grad():
            assert_close(kernelmill.aot.load(file)(x), model(x))
    assert targets(kernels) == {str(AMX), str(LESS)}


def test_the_command_says_whether_this_process_could_run_a_file(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, file = CompilerConfig(), tmp_path / "model.kmill"
    config.target = "x86-64-v4-amx"
    kernelmill.aot.compile(Model(tmp_path).run, (torch.randn(64, 33),), path=file, config=config)
    for system, words in (
        (forbidden(), "this process may not use the tile unit: the system forbids it"),
        (System(), "can run it as it is"),
    ):
        with machine_with_tiles(system):
            assert main(["aot", "info", str(file)]) == 0
        section = capsys.readouterr().out.partition("==== this machine ====\n")[2]
        assert words in section.partition("\n")[0]


def test_a_file_is_loaded_where_tiles_are_permitted(kernels: Path, tmp_path: Path) -> None:
    config, file = CompilerConfig(), tmp_path / "model.kmill"
    config.target = "x86-64-v4-amx"
    x = torch.randn(64, 33)
    kernelmill.aot.compile(Model(tmp_path).run, (x,), path=file, config=config)
    system = System()
    with machine_with_tiles(system), torch.no_grad():
        assert_close(kernelmill.aot.load(file, rebuild=False)(x), Model(tmp_path).run(x))
    assert system.asked


def test_a_target_with_tiles_stops_the_compile(kernels: Path, tmp_path: Path) -> None:
    config, x = CompilerConfig(), torch.randn(64, 33)
    config.target = "x86-64-v4-amx"
    ways: list[Callable[[], object]] = [
        lambda: cache_compile(Model(tmp_path).run, config=config),
        lambda: kernelmill.aot.compile(
            Model(tmp_path).run, (x,), path=tmp_path / "m.kmill", config=config,
            mmap_packed_weights=True,
        ),
    ]  # fmt: skip
    with machine_with_tiles(forbidden()):
        for way in ways:
            with pytest.raises(ConfigError, match="may not use the tile unit: the system forbids"):
                way()


def test_packages_that_need_tiles_are_passed_over_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package = packages.write_run(contents(target=profile("x86-64-v4-amx")), tmp_path)
    installed = str(tmp_path / "installed")
    with machine_with_tiles(System()):
        packages.installer.install(package, installed)
        (found,) = packages.packages_in(installed)
        assert found.machine.isa == AMX
    caplog.set_level(logging.WARNING, "kernelmill.store")
    with machine_with_tiles(forbidden()):
        assert packages.packages_in(installed) == []
    (warning,) = caplog.records
    assert "not used: this process may not use the tile unit: the system" in warning.getMessage()
