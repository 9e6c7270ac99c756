"""Compiled files with higher-order operators: they bring the graphs that these call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelmill
from kernelmill.aot.exporting import retargeted
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.program_set import program_set
from kernelmill.store.sealed import SealedFile
from tests.e2e.higher_order_models import MODELS, Attended, flat


@pytest.mark.parametrize("name", ["cond", "while_loop", "scan", "map"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_files(name: str, dynamic: bool, tmp_path: Path) -> None:
    model, _ = MODELS[name]
    module, path = model().eval(), str(tmp_path / "model.kmill")
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows},) if dynamic else None
    with torch.no_grad():
        kernelmill.aot.compile(module, (torch.rand(3, 8),), path=path, dynamic_shapes=shapes)
        program = kernelmill.aot.load(path)
        for sign in (1, -1):
            x = sign * torch.rand(7 if dynamic else 3, 8)
            for got, wanted in zip(flat(program(x)), flat(module(x)), strict=True):
                torch.testing.assert_close(got, wanted)
    assert program.report()["aten_calls"] == 1
    assert program.report()["calls"] > 2  # those of bodies, too


def test_files_with_attention(tmp_path: Path) -> None:
    module, path = Attended().eval(), str(tmp_path / "model.kmill")
    with torch.no_grad():
        kernelmill.aot.compile(module, (torch.randn(1, 2, 48, 8),), path=path)
        program, x = kernelmill.aot.load(path), torch.randn(1, 2, 48, 8)
        torch.testing.assert_close(program(x), module(x))
    assert program.report()["aten_calls"] == 0


def test_files_for_another_machine_are_compiled_with_their_bodies(tmp_path: Path) -> None:
    model, _ = MODELS["cond"]
    path = str(tmp_path / "model.kmill")
    with torch.no_grad():
        kernelmill.aot.compile(model().eval(), (torch.rand(3, 8),), path=path)
        again = retargeted(read_artifact(SealedFile(path, KMILL, writable=True)))
    assert len(program_set(again).programs) == 3


def test_files_with_packed_weights(tmp_path: Path) -> None:
    model, _ = MODELS["scan"]
    module, path, x = model().eval(), str(tmp_path / "model.kmill"), torch.rand(3, 8)
    with torch.no_grad():
        kernelmill.aot.compile(module, (x,), path=path, mmap_packed_weights=True)
        program = kernelmill.aot.load(path)
        for got, wanted in zip(flat(program(x)), flat(module(x)), strict=True):
            torch.testing.assert_close(got, wanted)
